"""Errors as OpenAI's SDKs read them: `{"error": {"message", "type", "param", "code"}}`."""

from __future__ import annotations

import re

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from anychip.http.call_record import tell_error
from anychip.refusal import near

LIST = "/openapi.json"
"""Where servers and routers list their paths."""
_PATH = re.compile(r" - at `\$\.?(.*)`$")
_NAMED = re.compile(r"(?:missing required|contains unknown) field `([^`]+)`")


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """The inner object of an error."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorEnvelope(msgspec.Struct, frozen=True):
    """The whole body of an error answer, and the last event of a stream that failed."""

    error: ErrorBody


class AnthropicError(msgspec.Struct, frozen=True, kw_only=True):
    """The inner object of an error of /v1/messages."""

    type: str
    message: str


class AnthropicEnvelope(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="error"):
    """The whole body of an error of /v1/messages, and the last event of a stream that failed."""

    error: AnthropicError


_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    500: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class ApiError(Exception):
    """An error for the client: HTTP status, and what the body says.

    retry_after: seconds after which the same request may be taken, told where it may be (503, 429).
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        retry_after: int = 1,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after
        self.body = ErrorBody(message=message, type=type, param=param, code=code)

    def envelope(self) -> ErrorEnvelope:
        """The body in OpenAI's words."""
        return ErrorEnvelope(self.body)

    def anthropic(self) -> AnthropicEnvelope:
        """The body in Anthropic's words."""
        kind = _ANTHROPIC_TYPES.get(self.status, "invalid_request_error")
        return AnthropicEnvelope(error=AnthropicError(type=kind, message=self.body.message))

    def note(self) -> None:
        """Have the call's record say that the client is told of this error."""
        tell_error(self.body.type, self.body.code)

    def response(self, path: str) -> Response:
        """The whole answer, in the words of the dialect that is spoken at `path`."""
        self.note()
        later = self.status in (429, 503)
        headers = {"Retry-After": str(self.retry_after)} if later else None
        told = self.anthropic() if f"{path}/".startswith("/v1/messages/") else self.envelope()
        return Response(msgspec.json.encode(told), self.status, headers, "application/json")


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """400: the client must change the request."""
    return ApiError(400, message, param=param, code=code)


def wrong_field(error: msgspec.ValidationError, where: str = "") -> ApiError:
    """400 for what does not fit its struct: names the field, also one that is missing or unknown.

    where: the path of the object in the body, empty for the body itself.
    """
    told = str(error)
    found, named = _PATH.search(told), _NAMED.search(told)
    path = _joined(where, found[1] if found else "")
    text = _PATH.sub("", told)
    field = _joined(path, named[1] if named else "")
    return bad_request(f"{path}: {text}" if path else text, field or None)


def _joined(*parts: str) -> str:
    return ".".join(part for part in parts if part)


def unavailable(message: str, code: str = "unavailable", retry_after: int = 1) -> ApiError:
    """503: the same request may succeed in `retry_after` seconds, or elsewhere."""
    return ApiError(503, message, type="service_unavailable", code=code, retry_after=retry_after)


def timed_out(message: str) -> ApiError:
    """504: the request was begun and took longer than it may."""
    return ApiError(504, message, type="timeout_error", code="request_timeout")


def server_error(message: str, code: str = "engine_error") -> ApiError:
    """500: the request was sound, we failed."""
    return ApiError(500, message, type="server_error", code=code)


async def on_api_error(request: Request, error: Exception) -> Response:
    """Starlette handler of ApiError."""
    if not isinstance(error, ApiError):
        raise error
    return error.response(request.url.path)


async def on_http_error(request: Request, error: Exception) -> Response:
    """Starlette handler of its own 404 and 405."""
    if not isinstance(error, HTTPException):
        raise error
    where, headers = f"{request.method} {request.url.path}", error.headers or {}
    text, code = str(error.detail), "http_error"
    if error.status_code == 404:
        text, code = f"there is no {where}; {_instead(request)}", "unknown_url"
    elif error.status_code == 405:
        text, code = f"{where}: this path takes {headers.get('Allow')}", "method_not_allowed"
    answer = ApiError(error.status_code, text, code=code).response(request.url.path)
    answer.headers.update(headers)
    return answer


def _instead(request: Request) -> str:
    """The path that may have been meant, or where to find those that there are."""
    paths = [r.path.replace(":path}", "}") for r in request.app.routes if isinstance(r, Route)]
    close = near(request.url.path, paths, alike=0.8)
    return f"the nearest is {close}" if close else f"GET {LIST} lists what there is"


async def on_crash(request: Request, error: Exception) -> Response:
    """Starlette handler of what nobody expected; the traceback goes to the log, not out."""
    return server_error(
        f"internal error ({type(error).__name__}); the server's log has the details", "internal"
    ).response(request.url.path)
