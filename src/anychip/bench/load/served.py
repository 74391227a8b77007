"""What a server tells of itself before it is loaded: the model's name, its vocabulary, its room."""

from __future__ import annotations

from typing import Any

import msgspec

from .calls import LoadError
from .client import LoadClient


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """None where the server does not tell. ours: an AnyChip server. context: tokens of a prompt
    and its answer. page_size: of its prefix cache. exact: whether it takes emit_token_ids."""

    model: str
    ours: bool = False
    vocab: int | None = None
    context: int | None = None
    page_size: int | None = None
    eos_ids: tuple[int, ...] = ()
    exact: bool = False
    facts: dict[str, Any] = {}


class _Meta(msgspec.Struct):
    """Of llama.cpp's list."""

    n_vocab: int | None = None
    n_ctx: int | None = None


class _Model(msgspec.Struct):
    id: str
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
    """model: its name there; None: the first that is listed. Raises LoadError where there is
    none."""
    found: _Models | None = None
    try:
        found = msgspec.json.decode(await client.get("/models"), type=_Models)
    except msgspec.MsgspecError as error:
        if model is None:
            raise LoadError(f"{client.base} lists no model: {error}; name one, --model") from error
    except LoadError:
        if model is None:
            raise
    listed = found.data if found is not None else []
    if model is None and not listed:
        raise LoadError(f"{client.base} lists no model; name one, --model")
    name = model or listed[0].id
    mine = next((one for one in listed if one.id == name), None)
    context = mine.context if mine else None
    info = await _info(client)
    if info is None:
        vocab = mine.meta.n_vocab if mine and mine.meta else None
        return Served(model=name, context=context, vocab=vocab)
    return Served(
        model=name,
        ours=True,
        vocab=info.engine.vocab_size,
        context=context,
        page_size=info.engine.page_size,
        eos_ids=tuple(info.engine.eos_ids),
        exact=bool(info.config.get("allow_exact_replay")),
        facts={"version": info.version, "backend": info.engine.backend},
    )


async def _info(client: LoadClient) -> _Info | None:
    """Of a server that is ours; SGLang's /server_info has other fields."""
    try:
        return msgspec.json.decode(await client.get("/server_info", beside=True), type=_Info)
    except (LoadError, msgspec.MsgspecError):
        return None
