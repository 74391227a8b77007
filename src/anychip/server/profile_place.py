"""Whether profiles can be written, looked at before the engine is started."""

from __future__ import annotations

import tempfile

from anychip.config import ServeConfig
from anychip.engine.messages import StartError
from anychip.settings import user_path


def check_profiles(config: ServeConfig) -> None:
    """Make the folder of --profile-dir. StartError where nothing can be written there."""
    if config.profile_dir is None:
        return
    folder = user_path(config.profile_dir, "--profile-dir")
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise StartError(
            f"--profile-dir: cannot write to {folder}: {error.strerror}; name a folder that this "
            "user may write to"
        ) from error
