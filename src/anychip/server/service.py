"""What every endpoint works with: engine client, tokenizer, template, metrics, running calls."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from anychip.config import ServeConfig
from anychip.engine.client import EngineClient
from anychip.engine.messages import EngineInfo
from anychip.http.errors import ApiError, bad_request, unavailable
from anychip.http.keys import Access, Caller
from anychip.server.chat_formats import formats_of
from anychip.server.grammars import Grammars
from anychip.server.metrics.registry import Metrics
from anychip.server.origin import Origin
from anychip.server.recording import Recorder
from anychip.server.request_log import RequestLog
from anychip.server.room import Room
from anychip.server.texts import Texts
from anychip.server.turnover import Turnover
from anychip.text.chat import ChatTemplate
from anychip.text.tokenizer import Tokenizer


class LiveCall(Protocol):
    """A call that is being answered (`generation.Generation`)."""

    origin: Origin

    def abort(self) -> None:
        """End it; its sequences finish with "abort"."""


class Service:
    """One served model. Belongs to one event loop."""

    def __init__(
        self,
        config: ServeConfig,
        client: EngineClient,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        access: Access,
    ) -> None:
        self.access = access
        self.config = config
        self.client = client
        self.tokenizer = tokenizer
        self.texts = Texts(client, tokenizer, template)
        self.grammars = Grammars(config, client, tokenizer)
        self.live: dict[tuple[str | None, str], LiveCall] = {}
        """Running calls by tenant and id: each tenant has ids of its own."""
        self.formats = formats_of(config, template.text)
        self.draining = False
        self.created = int(time.time())
        self.instance_id = secrets.token_hex(16)
        """Of this start of the server: by it a router knows one server under two addresses."""
        info: EngineInfo = client.info
        self.model_name = config.served_model_name or info.model_name
        aliases = config.metrics_alias.split(",") if config.metrics_alias else ()
        self.metrics = Metrics(self.model_name, client, aliases)
        self.turnover = Turnover()
        self.request_log = RequestLog(config, tokenizer)
        self.recorder = Recorder(config, info, tokenizer)
        self._seeds = random.Random(config.random_seed)
        self._serial = 0

    @property
    def info(self) -> EngineInfo:
        """The engine's facts."""
        return self.client.info

    @property
    def room(self) -> Room:
        """What a sequence may need."""
        return self.texts.room

    @property
    def retry_after(self) -> int:
        """Seconds in which those who wait now should have had their turn."""
        return self.turnover.wait_s(self.client.stats.queued)

    def next_seed(self) -> int:
        """A seed for a call that brought none; the row of them follows from --random-seed."""
        return self._seeds.getrandbits(63)

    def next_engine_id(self, rid: str) -> str:
        """An id that no request of this engine ever had, even where a client uses a rid again."""
        self._serial += 1
        return f"{rid}/{self._serial}"

    def check_model(self, name: str | None) -> None:
        """ApiError 404 for a model that is not served. Without a name the served one is meant."""
        known = {None, self.model_name}
        if self.config.served_model_name is None:
            known.add(self.config.model_path)  # what SGLang serves a model as
        if name not in known:
            raise ApiError(
                404,
                f"the model {name!r} does not exist; this server has {self.model_name!r}",
                param="model",
                code="model_not_found",
            )

    def check_open(self) -> None:
        """ApiError 503 where no new call is taken."""
        if self.draining:
            raise unavailable("the server is shutting down", "shutting_down")
        if not self.client.ready:
            raise unavailable(self.client.reason, "engine_unavailable")

    def check_rid(self, origin: Origin) -> None:
        """ApiError 400 where a running call of the tenant has the id."""
        if (origin.tenant, origin.rid) in self.live:
            text = f"rid {origin.rid!r} is in use; choose another"
            raise bad_request(text, "rid", "duplicate_rid")

    @contextmanager
    def registered(self, call: LiveCall) -> Iterator[None]:
        """Hold the call's rid while it runs. ApiError 400 where the rid is in use."""
        self.check_open()
        self.check_rid(call.origin)
        place = (call.origin.tenant, call.origin.rid)
        self.live[place] = call
        try:
            yield
        finally:
            del self.live[place]

    def abort(self, rid: str, caller: Caller) -> bool:
        """End a running call of the caller by its exact rid; an admin's may be anybody's."""
        mine = [
            call
            for (tenant, name), call in self.live.items()
            if name == rid and (caller.admin or tenant == caller.tenant)
        ]
        for call in mine:
            call.abort()
        return bool(mine)

    def abort_all(self) -> int:
        """End every running call; how many there were."""
        running = list(self.live.values())
        for call in running:
            call.abort()
        return len(running)

    def close(self) -> None:
        """End threads and the processes of templates and grammars; write what is recorded."""
        self.texts.close()
        self.grammars.close()
        self.recorder.close()
