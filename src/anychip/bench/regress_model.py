"""The model of a case on disk, and how it is opened."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from anychip.bench.regress_cases import DEMO, Case, Cases, CasesError
from anychip.config import ServeConfig
from anychip.model.checkpoint import open_checkpoint
from anychip.model.errors import CheckpointError
from anychip.model.tiny_family import write_family
from anychip.settings import user_path


def config_of(given: ServeConfig, cases: Cases, group: Sequence[Case], folder: Path) -> ServeConfig:
    """The chip that was asked for, the model of these cases, and nothing else that was configured.

    given: its model_path is the demo model. folder: for the model that is written. Raises
    CasesError, CheckpointError, ConfigError.
    """
    path = _path(given, cases, group[0], folder)
    sizes = cases.sizes
    checkpoint = open_checkpoint(path)
    context = min(sizes.context, checkpoint.config.context_length)
    checkpoint.close()
    return ServeConfig(
        model_path=str(path),
        backend=given.backend,
        device_index=given.device_index,
        chip_option=given.chip_option,
        op=given.op,
        allow_host_ops=given.allow_host_ops,
        dtype=given.dtype,
        cache_dir=given.cache_dir,
        build_dir=given.build_dir,
        context_length=context,
        max_running_requests=sizes.slots,
        max_total_tokens=max(case.positions(context, sizes.chunk) for case in group),
    )


def _path(given: ServeConfig, cases: Cases, case: Case, folder: Path) -> Path:
    structure = cases.structures[case.structure]
    if structure.model == DEMO:
        assert given.model_path is not None
        return Path(given.model_path)
    if structure.model is not None:
        return _given(user_path(structure.model, f"structure {case.structure}: model"), case)
    settings = cases.settings(case.structure)
    try:
        return write_family(folder / case.model, settings, case.format, gguf=structure.gguf)
    except CheckpointError as error:
        raise CasesError(f"model {case.model}: {error}") from error
    except OSError as error:
        raise CasesError(
            f"model {case.model}: cannot be written to {folder}: {error.strerror or error}; "
            "TMPDIR names another place"
        ) from error


def _given(path: Path, case: Case) -> Path:
    """A hub is not asked: what is compared with a baseline has to stay the same."""
    if path.exists():
        return path
    raise CasesError(
        f"structure {case.structure}: model: {path} is not there; name a folder or a .gguf file "
        "of this machine"
    )
