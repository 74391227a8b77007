"""Equal answers, with the tie rule: where two runs differ, the oracle's two best logits at the
first differing token must be closer than twice the measured logit error. Anything else fails."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import tiny_models
from anychip.config import ServeConfig
from anychip.engine.offline import OfflineEngine
from anychip.request import SamplingParams

if TYPE_CHECKING:
    from collections.abc import Sequence

REPORT = {"ties": 0}


def greedy(max_tokens: int) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)


def config(path: Any, **changes: Any) -> ServeConfig:
    """A small server configuration over `path`."""
    chosen = {"max_total_tokens": 4096, "max_running_requests": 16, **changes}
    return ServeConfig(model_path=str(path), **chosen)


def last_logits(offline: OfflineEngine) -> np.ndarray:
    """Logits of the last step's last sampling row, float32 [V]."""
    program = offline.engine.runner.last
    logits = np.zeros(program.logits.shape, np.float32)
    chip = offline.engine.runner._chip
    chip.memory.copy_out(program.logits, logits.data)
    return logits[-1]


@dataclass
class Oracle:
    """Transformers' greedy answers and logits in float32."""

    model: Any
    seen: dict[tuple[int, ...], np.ndarray] = field(default_factory=dict)

    def answer(self, prompt: list[int], count: int, draft: Sequence[int] = ()) -> list[int]:
        """Greedy tokens. `draft` is a guess that only saves time: one forward pass judges all of
        it, and from the first wrong token on the answer is computed without it."""
        import torch

        found: list[int] = []
        while len(found) < count:
            guess = list(draft[len(found) : count - 1]) if [*draft[: len(found)]] == found else []
            with torch.no_grad():
                logits = self.model(torch.tensor([[*prompt, *found, *guess]])).logits[0]
            for best in logits[len(prompt) + len(found) - 1 :].argmax(-1).tolist():
                found.append(best)
                if len(found) > len(draft) or draft[len(found) - 1] != best:
                    break
        return found[:count]

    def logits(self, ids: Sequence[int]) -> np.ndarray:
        """Logits after the last of `ids`, float32 [V]."""
        import torch

        key = tuple(ids)
        if key not in self.seen:
            with torch.no_grad():
                self.seen[key] = self.model(torch.tensor([list(ids)])).logits[0, -1].numpy()
        return self.seen[key]


def assert_same(
    offline: OfflineEngine,
    oracle: Oracle | None,
    prompt: list[int],
    got: list[int],
    wanted: list[int],
) -> None:
    """Equal, or a tie at the first differing token. Every tie is counted in REPORT.

    Without an oracle: equal.
    """
    if got == wanted:
        return
    assert oracle is not None, (got, wanted)
    assert len(got) == len(wanted), (len(got), len(wanted))
    first = next(i for i, (a, b) in enumerate(zip(got, wanted, strict=True)) if a != b)
    prefix = [*prompt, *wanted[:first]]
    reference = oracle.logits(prefix)
    offline.engine.flush_cache()
    offline.generate([prefix], greedy(1))
    error = float(np.abs(last_logits(offline) - reference).max())
    best, second = np.sort(reference)[-1], np.sort(reference)[-2]
    assert {got[first], wanted[first]} == set(np.argsort(reference)[-2:].tolist())
    assert best - second < 2 * error, f"token {first}: margin {best - second}, error {error}"
    REPORT["ties"] += 1


def assert_answers(
    offline: OfflineEngine, oracle: Oracle, prompts: list[list[int]], count: int, batch: int = 0
) -> None:
    """Greedy answers of `count` tokens, `batch` prompts at once (0: all), are the oracle's."""
    size = batch or len(prompts)
    starts = range(0, len(prompts), size)
    batches = (offline.generate(prompts[s : s + size], greedy(count)) for s in starts)
    found = [completion.token_ids for batch in batches for completion in batch]
    for prompt, got in zip(prompts, found, strict=True):
        assert_same(offline, oracle, prompt, got, oracle.answer(prompt, count, got))


def demo_oracle(demo_model: Path) -> Oracle:
    """The demo model's GGUF in transformers."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        demo_model.parent, gguf_file=demo_model.name, dtype=torch.float32
    )
    return Oracle(model.eval())


def tiny_prompts() -> list[list[int]]:
    """For a tiny model: of 1 to 150 tokens, two that begin alike."""
    ids = tiny_models.tiny_tokenizer().encode(" ".join(tiny_models.CORPUS) * 3).ids
    return [ids[:1], ids[5:22], ids[9:69], ids[9:40] + ids[90:130], ids[:150]]
