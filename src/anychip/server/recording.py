"""`--record`: what each sequence asked for and got, handed to the record's thread when it ends."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from anychip.config import ServeConfig
from anychip.engine.messages import EngineInfo, StartError
from anychip.record.lines import FORMAT, NUMBERS, VERSION, Header, Recorded, RecordError, Salt
from anychip.record.writer import RecordCounts, RecordWriter
from anychip.request import Request
from anychip.server.choice import Choice
from anychip.server.origin import Origin
from anychip.server.sampling import Sampling
from anychip.settings import user_path
from anychip.text.tokenizer import Tokenizer

_CONTENT = (
    "logit_bias",
    "bad_words",
    "allowed_token_ids",
    "stop",
    "stop_token_ids",
    "stop_regex",
    "skip_special_tokens",
    "no_stop_trim",
)
_USUAL = Sampling(max_tokens=None)


class Recorder:
    """The record of a server; without --record it keeps nothing."""

    def __init__(self, config: ServeConfig, info: EngineInfo, tokenizer: Tokenizer) -> None:
        """Raises StartError where the file cannot be written."""
        self._privacy, self._tokenizer = config.record_privacy, tokenizer
        self._salt = Salt(secrets.token_bytes(32))
        self._serial = 0
        self._started, self._clock = time.time(), time.monotonic()
        self._writer: RecordWriter | None = None
        if config.record is None:
            return
        header = Header(
            format=FORMAT,
            version=VERSION,
            started=self._started,
            model=config.served_model_name or info.model_name,
            dtype=info.dtype,
            quantization=info.quantization,
            chip=info.backend,
            privacy=self._privacy,
            vocab_size=info.vocab_size,
        )
        try:
            path = user_path(config.record, "--record")
            self._writer = RecordWriter(
                path, header, max_bytes=config.record_max_bytes, keep=config.record_keep
            )
        except RecordError as error:
            raise StartError(f"--record: {error}") from error

    def call(self, origin: Origin, sampling: Sampling, seed: int) -> CallNote | None:
        """What notes a call that begins; None where nothing is recorded."""
        return None if self._writer is None else CallNote(self, origin, sampling, seed)

    @property
    def counts(self) -> RecordCounts | None:
        """None where nothing is recorded."""
        return None if self._writer is None else self._writer.counts

    def close(self) -> None:
        """Write what is left."""
        if self._writer is not None:
            self._writer.close()

    def put(self, call: CallNote, request: Request, choice: Choice) -> None:
        """Hand over one sequence that has ended."""
        if self._writer is None:
            return
        self._serial += 1
        at_s = call.started - self._clock
        response = tuple(choice.token_ids)
        times = [round(when - call.started, 6) for when in call.times.get(choice.index, ())]
        known = {
            "id": self._serial,
            "at": self._started + at_s,
            "at_s": round(at_s, 6),
            "endpoint": call.origin.endpoint,
            "prompt_tokens": len(request.prompt),
            "max_tokens": request.params.max_tokens,
            "response_tokens": len(response),
            "times": times[: len(response)],
            "total_s": round(time.monotonic() - call.started, 6),
            "finish": choice.finish or ("error" if call.error else "abort"),
            "cached_tokens": choice.cached_tokens,
            "error": call.error,
        }
        self._writer.put(lambda: self._line(call, request.prompt, response, known))

    def _line(
        self,
        call: CallNote,
        prompt: tuple[int, ...],
        response: tuple[int, ...],
        known: Mapping[str, Any],
    ) -> Recorded:
        """In the record's thread: hashes and texts take time."""
        namespace, lengths = call.origin.namespace, self._privacy == "lengths"
        line = Recorded(
            **known,
            space=self._salt.of(namespace),
            params=_params(call.sampling, call.seed, call.origin.priority, content=not lengths),
            grammar=_grammar(call.sampling, content=not lengths),
        )
        if lengths:
            return msgspec.structs.replace(line, blocks=self._salt.blocks(prompt, namespace))
        line = msgspec.structs.replace(line, prompt=list(prompt), response=list(response))
        if self._privacy == "tokens":
            return line
        return msgspec.structs.replace(
            line,
            text=self._tokenizer.decode(prompt, False),
            response_text=self._tokenizer.decode(response, False),
        )


class CallNote:
    """Notes when the tokens of a call came. error: the code of what ended it before its end."""

    def __init__(self, recorder: Recorder, origin: Origin, sampling: Sampling, seed: int) -> None:
        self._recorder = recorder
        self.origin, self.sampling, self.seed = origin, sampling, seed
        self.started = time.monotonic()
        self.times: dict[int, list[float]] = {}
        self.error: str | None = None
        self._put: set[int] = set()

    def took(self, choice: Choice, request: Request, *, over: bool) -> None:
        """After each output of a choice. over: no more comes, whether it has finished or not."""
        now, times = time.monotonic(), self.times.setdefault(choice.index, [])
        times.extend([now] * (len(choice.token_ids) - len(times)))
        if (over or choice.finish is not None) and choice.index not in self._put:
            self._put.add(choice.index)
            self._recorder.put(self, request, choice)


def _params(sampling: Sampling, seed: int, priority: int, *, content: bool) -> dict[str, Any]:
    names = NUMBERS + (_CONTENT if content else ())
    given = {
        name: value for name in names if (value := getattr(sampling, name)) != getattr(_USUAL, name)
    }
    if "logit_bias" in given:
        given["logit_bias"] = {str(token): bias for token, bias in given["logit_bias"].items()}
    if sampling.temperature:
        given["seed"] = seed
    return {**given, "priority": priority} if priority else given


def _grammar(sampling: Sampling, *, content: bool) -> dict[str, str] | None:
    if sampling.grammar is None:
        return None
    spec = sampling.grammar.spec
    return {"kind": spec.kind, "text": spec.text} if content else {"kind": spec.kind}
