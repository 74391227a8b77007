"""Where a call comes from: its id, its tenant, its part of the prefix cache, its priority."""

from __future__ import annotations

from typing import Protocol

import msgspec

from anychip.http.errors import bad_request
from anychip.server.validation import rid_of
from anychip.text.errors import require_unicode

MAX_PART_CHARS = 256
"""Characters of cache_salt and of extra_key."""
LOWEST, HIGHEST = -(2**31), 2**31 - 1
"""Limits of a priority."""
ENDPOINTS = {
    "gen-": "/generate",
    "cmpl-": "/v1/completions",
    "chatcmpl-": "/v1/chat/completions",
    "msg_": "/v1/messages",
    "resp_": "/v1/responses",
}
"""By the prefix of the ids that the server gives."""


class OriginFields(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of every call that generates.

    cache_salt, extra_key: cached prefixes are shared only between calls that send the same ones.
    priority: a higher one goes first where the scheduler looks at priorities.
    """

    rid: str | None = None
    cache_salt: str | None = None
    extra_key: str | None = None
    priority: int | None = None


class HasOrigin(Protocol):
    """`OriginFields`, or a body with the same fields."""

    @property
    def rid(self) -> str | None:
        """The client's id for the call."""

    @property
    def cache_salt(self) -> str | None:
        """As in OriginFields."""

    @property
    def extra_key(self) -> str | None:
        """As in OriginFields."""

    @property
    def priority(self) -> int | None:
        """As in OriginFields."""


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine and the log are told about where a call comes from.

    tenant: name of the key that it came with, None without named keys. endpoint: its path.
    """

    rid: str
    tenant: str | None = None
    namespace: str = ""
    priority: int = 0
    endpoint: str = ""

    @property
    def name(self) -> str:
        """For log lines: the id, and whose it is."""
        return repr(self.rid) if self.tenant is None else f"{self.rid!r} of {self.tenant}"


def origin_of(call: HasOrigin, tenant: str | None, prefix: str) -> Origin:
    """The checked fields. ApiError 400. prefix: of an id that the server gives."""
    for name in ("cache_salt", "extra_key"):
        value = getattr(call, name)
        if value is None:
            continue
        if not 0 < len(value) <= MAX_PART_CHARS:
            raise bad_request(
                f"{name} has {len(value)} characters; send 1 to {MAX_PART_CHARS}, or leave it out",
                name,
            )
        require_unicode(value, name)
    priority = call.priority or 0
    if not LOWEST <= priority <= HIGHEST:
        raise bad_request(
            f"priority is {priority}; it must be {LOWEST} to {HIGHEST} (0 is usual)", "priority"
        )
    return Origin(
        rid=rid_of(call.rid, prefix),
        tenant=tenant,
        namespace=namespace_of(tenant, call.cache_salt, call.extra_key),
        priority=priority,
        endpoint=ENDPOINTS[prefix],
    )


def namespace_of(tenant: str | None, cache_salt: str | None, extra_key: str | None) -> str:
    """The prefix cache's namespace; empty where nothing sets the call apart.

    Each part has its tag and JSON's quotes, so that no two different inputs give one namespace.
    """
    parts = {"tenant": tenant, "salt": cache_salt, "key": extra_key}
    given = {tag: part for tag, part in parts.items() if part is not None}
    return msgspec.json.encode(given).decode() if given else ""
