"""What a server tells of itself before it is loaded: the model's name, its vocabulary, its room."""

from __future__ import annotations

from typing import Any

import msgspec

from .calls import LoadError
from .client import LoadClient

_NO_LIST = (404, 405, 501)
"""Statuses of a server that has no /v1/models."""
_SHOWN = 10


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """None where the server does not tell. ours: an AnyChip server. context: tokens of a prompt
    and its answer. page_size: of its prefix cache. exact: whether it takes emit_token_ids. notes:
    what it could not be asked, in words."""

    model: str
    ours: bool = False
    vocab: int | None = None
    context: int | None = None
    page_size: int | None = None
    eos_ids: tuple[int, ...] = ()
    exact: bool = False
    facts: dict[str, Any] = {}
    notes: tuple[str, ...] = ()


class _Meta(msgspec.Struct):
    """Of llama.cpp's list."""

    n_vocab: int | None = None
    n_ctx: int | None = None


class _Model(msgspec.Struct):
    """root: the folder or file that it was started with; servers of ours answer to that too."""

    id: str
    root: str | None = None
    max_model_len: int | None = None
    meta: _Meta | None = None

    @property
    def context(self) -> int | None:
        """As vLLM, SGLang and ours name it, or llama.cpp."""
        return self.max_model_len or (self.meta.n_ctx if self.meta else None)


class _Models(msgspec.Struct):
    data: list[_Model]


class _Engine(msgspec.Struct):
    vocab_size: int
    page_size: int
    backend: str = ""
    eos_ids: list[int] = []


class _Info(msgspec.Struct):
    version: str
    engine: _Engine
    config: dict[str, Any] = {}


async def ask_server(client: LoadClient, model: str | None = None) -> Served:
    """model: its name there; None: the first that is listed. Raises LoadError where it is not
    there, or cannot be asked for."""
    listed, why = await _listed(client)
    if not listed and model is None:
        raise LoadError(f"{client.base} lists no model ({why}); name one, --model")
    if listed and model is not None and not any(model in (one.id, one.root) for one in listed):
        names = ", ".join(one.id for one in listed[:_SHOWN])
        more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
        raise LoadError(f"--model: {client.base} has no model {model!r}; it has {names}{more}")
    name = model or listed[0].id
    notes = () if listed else (f"whether the server has {name} is not known: {why}",)
    mine = next((one for one in listed if name in (one.id, one.root)), None)
    context = mine.context if mine else None
    info = await _info(client)
    if info is None:
        vocab = mine.meta.n_vocab if mine and mine.meta else None
        return Served(model=name, context=context, vocab=vocab, notes=notes)
    return Served(
        model=name,
        ours=True,
        vocab=info.engine.vocab_size,
        context=context,
        page_size=info.engine.page_size,
        eos_ids=tuple(info.engine.eos_ids),
        exact=bool(info.config.get("allow_exact_replay")),
        facts={"version": info.version, "backend": info.engine.backend},
        notes=notes,
    )


async def _listed(client: LoadClient) -> tuple[list[_Model], str]:
    """The models that the server lists, or why it lists none. Raises LoadError where it cannot be
    asked at all, or wants a key."""
    try:
        found = msgspec.json.decode(await client.get("/models"), type=_Models)
    except (msgspec.MsgspecError, UnicodeError) as error:
        return [], f"what it calls /models is no list of models: {error}"
    except LoadError as error:
        if error.status not in _NO_LIST:
            raise
        return [], str(error)
    return found.data, "its list is empty"


async def _info(client: LoadClient) -> _Info | None:
    """Of a server that is ours; SGLang's /server_info has other fields."""
    try:
        return msgspec.json.decode(await client.get("/server_info", beside=True), type=_Info)
    except (LoadError, msgspec.MsgspecError):
        return None
