"""The key that workers want, and whom to trust behind https."""

from __future__ import annotations

import os
import ssl

from anychip.config import RouterConfig
from anychip.engine.messages import StartError
from anychip.settings import user_path

_FLAG = "--worker-api-key-file"
_MOST = 4096


def read_worker_key(config: RouterConfig) -> str | None:
    """The one word of the file. StartError for a file that cannot be read, or that others can."""
    if config.worker_api_key_file is None:
        return None
    path = config.worker_api_key_file
    try:
        with user_path(path, _FLAG).open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            words = file.read(_MOST).decode("ascii").split()
    except OSError as error:
        raise StartError(f"{_FLAG}: {path}: it cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise StartError(f"{_FLAG}: {path}: a key has ASCII characters alone") from error
    if mode & 0o077:
        text = f"others may open it (mode {mode & 0o777:04o}); chmod 600 {path}"
        raise StartError(f"{_FLAG}: {path}: {text}")
    if len(words) != 1 or not words[0].isprintable():
        raise StartError(f"{_FLAG}: {path}: it holds {len(words)} words; write the key alone")
    return words[0]


def worker_tls(config: RouterConfig) -> ssl.SSLContext | None:
    """Whom to trust; None: whom the system does. StartError for a file that is none."""
    if config.worker_ca_certs is None:
        return None
    path = user_path(config.worker_ca_certs, "--worker-ca-certs")
    try:
        return ssl.create_default_context(cafile=str(path))
    except ssl.SSLError as error:
        text = f"--worker-ca-certs: {path} holds no PEM certificate ({error.reason})"
        raise StartError(text) from error
    except OSError as error:
        text = f"--worker-ca-certs: {path} cannot be read: {error.strerror}"
        raise StartError(text) from error
