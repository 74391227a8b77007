"""What is asked of workers: routed calls, and what belongs to one worker alone."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from anychip.http.auth import caller_of
from anychip.http.body import read_body
from anychip.http.call_record import CallRecord, current_call
from anychip.http.errors import ApiError
from anychip.http.relay import Headers, Passed, kept

from .asking import Ask, read_ask
from .desk import Desk
from .holders import Owned
from .looking import Unwell, short_answer
from .passing import Routed, RoutedCall

RESPONSES = "/v1/responses"
_NOT_GENERATING = frozenset(
    {
        "/tokenize",
        "/detokenize",
        "/v1/tokenize",
        "/v1/detokenize",
        "/v1/messages/count_tokens",
    }
)


async def routed(request: Request) -> Response:
    """A call that any worker with the model may answer."""
    desk: Desk = request.app.state.desk
    desk.check_open(request)
    body = await read_body(request, desk.config.max_request_bytes)
    route = request.url.path
    ask = read_ask(route, request.headers, body)
    owner = caller_of(request).tenant
    only = None
    if route == RESPONSES and ask.follows is not None:
        only = await _keeper(desk, request, Owned(owner, ask.follows))
    call = RoutedCall(
        route=route,
        ask=ask,
        sent=_sent(request, body),
        owner=owner,
        only=only,
        remembers=route == RESPONSES,
        generates=route not in _NOT_GENERATING,
    )
    return Routed(desk, call, _record(request))


async def about_response(request: Request) -> Response:
    """GET, DELETE or cancel of one response: its worker answers."""
    desk: Desk = request.app.state.desk
    desk.check_open(request)
    body = await read_body(request, desk.config.max_request_bytes)
    owned = Owned(caller_of(request).tenant, str(request.path_params["id"]))
    route = f"{RESPONSES}/{{id}}"
    call = RoutedCall(
        route=route,
        ask=Ask(route),
        sent=_sent(request, body),
        owner=owned.tenant,
        only=await _keeper(desk, request, owned),
        generates=False,
    )
    if request.method == "DELETE":
        desk.holders.drop(owned)
    return Routed(desk, call, _record(request))


async def _keeper(desk: Desk, request: Request, owned: Owned) -> str:
    """The worker that keeps a response: known, or found by asking. ApiError 404.

    A router that was started again has forgotten; workers have not. Where they cannot tell
    tenants apart they are not asked: the response may be another tenant's.
    """
    known = desk.holders.stored(owned)
    if known is not None and known in desk.fleet.workers:
        return known
    if owned.tenant is None or not desk.one_tenant:
        headers = desk.headers_for_worker(_bare(request))
        for worker in desk.fleet.ready():
            target = f"{RESPONSES}/{_quoted(owned.id)}"
            asked = Passed("GET", worker.place.url, target, headers, b"")
            try:
                status, _ = await short_answer(desk.relay, asked)
            except Unwell:  # the next look at it tells why
                continue
            if status == 200:
                desk.holders.store(owned, worker.name)
                return worker.name
    raise ApiError(
        404,
        f"no worker that is ready keeps a response {owned.id!r}; send its whole input instead",
        param="previous_response_id",
        code="response_not_found",
    )


def _quoted(name: str) -> str:
    """For a path: an id of a foreign server may have any character."""
    from urllib.parse import quote  # noqa: PLC0415

    return quote(name, safe="")


def _sent(request: Request, body: bytes) -> Passed:
    """The call as it came, for whichever worker."""
    raw: bytes = request.scope.get("raw_path") or request.url.path.encode()
    query: bytes = request.scope["query_string"]
    target = raw.decode("ascii") + (f"?{query.decode('ascii')}" if query else "")
    return Passed(request.method, "", target, kept(request.headers.raw), body)


def _bare(request: Request) -> Headers:
    """The headers of the call without those about its body."""
    about = (b"content-type", b"content-length")
    return [pair for pair in kept(request.headers.raw) if pair[0].lower() not in about]


def _record(request: Request) -> CallRecord:
    """The call's record; `Observed` lies around the whole application, so there is one."""
    found = current_call()
    return found or CallRecord(request_id="", method=request.method, path=request.url.path)
