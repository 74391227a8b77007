"""What `anychip.Engine` raises: the texts are those of the server's error answers."""

from __future__ import annotations

from anychip.http.errors import ApiError


class CallError(Exception):
    """A call that got no answer, as the server would tell it.

    status: of HTTP. type, param, code: as in the body of an error answer. param: the field.
    """

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.body.message)
        self.status = error.status
        self.type = error.body.type
        self.param = error.body.param
        self.code = error.body.code


class CallRefused(CallError, ValueError):
    """The call must be changed (status 400 to 499)."""


class CallFailed(CallError, RuntimeError):
    """The call was sound: no engine, a full queue, too long a time, or the engine failed (5xx)."""


class EngineClosed(RuntimeError):
    """The Engine is closed, was closed meanwhile, or belongs to another process."""


class InsideLoop(RuntimeError):
    """A call that waits, in the thread of a running event loop, which it would stop."""


def raised(error: ApiError) -> CallError:
    """The exception for an error answer."""
    return CallRefused(error) if error.status < 500 else CallFailed(error)
