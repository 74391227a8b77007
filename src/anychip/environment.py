"""The environment that a process of ours hands on. Settings are read from it in config.py alone."""

from __future__ import annotations

import os
from collections.abc import Mapping


def engine_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of an engine's process. environ: the process's own where None.

    numpy's BLAS starts a thread for each core as it is imported, and each spins for some 50 ms
    before it sleeps: on a small machine that is time that the start needs. Here it spins for 2**20
    ticks, less than a millisecond; a variable of the user's own stays.
    """
    environ = os.environ if environ is None else environ
    return {"OPENBLAS_THREAD_TIMEOUT": "20", **environ}
