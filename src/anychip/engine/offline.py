"""The engine in the caller's own process, for `anychip generate` and for tests.

Programs that serve a model use `anychip.Engine`: a server's engine process and protocols.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from anychip.config import ServeConfig
from anychip.engine.build import build_engine
from anychip.engine.engine import Engine
from anychip.request import FinishReason, Request, SamplingParams, StepOutput
from anychip.run.local_model import local_model
from anychip.text.load import open_chat_template, open_tokenizer
from anychip.text.tokenizer import Tokenizer


@dataclass
class Completion:
    """One prompt's continuation. error: set where finish is ERROR."""

    text: str
    token_ids: list[int]
    finish: FinishReason | None
    prompt_tokens: int
    cached_tokens: int
    retractions: int = 0
    error: str | None = None


class OfflineEngine:
    """Builds an engine, generates, closes. Use it as a context manager.

    It is for what must reach scheduler and runner (`engine`): checks, tests, benches. One call at a
    time, no streams, no restart, params not checked; `anychip.Engine` has all of that.

    overlap: steps run while the ones before are booked, as they do in a server.
    """

    def __init__(
        self,
        config: ServeConfig,
        report: Callable[[str], None] = lambda line: None,
        *,
        overlap: bool = False,
    ) -> None:
        config = local_model(config)
        self.engine, self.info = build_engine(config, report, overlap=overlap)
        try:
            self.tokenizer: Tokenizer = open_tokenizer(_tokenizer(config))
            self._template = open_chat_template(self.tokenizer, config.chat_template)
        except BaseException:
            self.engine.close()
            raise
        self._number = 0

    def __enter__(self) -> OfflineEngine:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back the device."""
        self._template.close()
        self.engine.close()

    def generate(
        self,
        prompts: Sequence[str] | Sequence[list[int]],
        params: SamplingParams,
        chat: bool = False,
    ) -> list[Completion]:
        """Continue every prompt, batched as the scheduler likes; results in their order."""
        ids = [self._ids(prompt, chat) for prompt in prompts]
        found = run_requests(self.engine, [self._request(prompt, params) for prompt in ids])
        for completion, prompt in zip(found, ids, strict=True):
            completion.text = self.tokenizer.decode(completion.token_ids)
            completion.prompt_tokens = len(prompt)
        return found

    def _request(self, prompt: list[int], params: SamplingParams) -> Request:
        self._number += 1
        return Request(id=f"offline-{self._number}", prompt=tuple(prompt), params=params)

    def _ids(self, prompt: str | list[int], chat: bool) -> list[int]:
        if not isinstance(prompt, str):
            return prompt
        if not chat:
            return self.tokenizer.encode(prompt)
        text = self._template.render([{"role": "user", "content": prompt}])
        return self.tokenizer.encode(text, add_special_tokens=False)


def _tokenizer(config: ServeConfig) -> Path:
    return Path(str(config.tokenizer_path or config.model_path)).expanduser()


def run_requests(engine: Engine, requests: Sequence[Request]) -> list[Completion]:
    """Submit all, step until all have ended."""
    found = {r.id: Completion("", [], None, len(r.prompt), 0) for r in requests}
    for request in requests:
        engine.submit(request)

    def step_until_all_ended() -> None:
        while any(c.finish is None for c in found.values()):
            for output in engine.step():
                _add(found[output.request_id], output)

    engine.serve(step_until_all_ended)
    return list(found.values())


def _add(completion: Completion, output: StepOutput) -> None:
    completion.token_ids.extend(output.token_ids)
    completion.finish = output.finish or completion.finish
    completion.cached_tokens = max(completion.cached_tokens, output.cached_tokens)
    completion.retractions = max(completion.retractions, output.retractions)
    completion.error = output.error or completion.error
