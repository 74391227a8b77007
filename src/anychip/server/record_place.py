"""Whether a record can be written, looked at before the engine is started."""

from __future__ import annotations

from anychip.config import ServeConfig
from anychip.engine.messages import StartError
from anychip.record.lines import RecordError
from anychip.record.writer import check_place
from anychip.settings import user_path


def check_record(config: ServeConfig) -> None:
    """StartError where --record names what cannot be written."""
    if config.record is None:
        return
    try:
        check_place(user_path(config.record, "--record"))
    except RecordError as error:
        raise StartError(f"--record: {error}") from error
