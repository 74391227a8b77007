"""Perplexity of each width on a text that ships with Python, against float32 and transformers.

    .venv/bin/python bench/perplexity.py --folder BF16_FOLDER --model GGUF [GGUF ...] \\
        [--dtype float32 bfloat16] [--quantization w8a8_int8 q8_0] [--transformers bfloat16] \\
        [--windows 20] [--json FILE]

The text: the topics of the language reference in `pydoc_data.topics`, in alphabetical order,
cut into windows of --context tokens that do not overlap; every token of a window but the first is
scored. All engines get the same token ids, of the first model's tokenizer. AnyChip's logits come
from its own step (whole_logits.py), each run in a process of its own.

The base of all comparisons is AnyChip in float32 on the bfloat16 folder. A GGUF file that was made
from another one has that one's errors: compare what arithmetic and width add, not the original.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from command_line import count, need, need_model

CHUNK = 256
"""Tokens of a step: enough rows for the path that prefill takes, and few enough logits."""

LEAST_TOKENS = 20000
PATIENCE = 7200
"""Seconds for one run."""
Floats = npt.NDArray[np.float64]
Tokens = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Run:
    """One engine on one model in one dtype. quantization: made at load; empty: none."""

    engine: str
    model: Path
    dtype: str
    quantization: str = ""

    @property
    def name(self) -> str:
        """What the table calls it."""
        made = f" quantized to {self.quantization}" if self.quantization else ""
        return f"{self.engine} {self.model.name}{made} {self.dtype}"


@dataclass(frozen=True)
class Scores:
    """Of each scored token: its negative log probability, and the token that was most likely."""

    losses: Floats
    best: Tokens

    @property
    def perplexity(self) -> float:
        """e to the mean loss."""
        return float(np.exp(self.losses.mean()))


def text() -> str:
    """The reference text. It differs between versions of Python: its hash is printed."""
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics))


def windows_of(ids: Sequence[int], context: int, count: int) -> list[list[int]]:
    """The first `count` windows. Raises ValueError where the text is too short."""
    if count * context > len(ids):
        raise ValueError(f"the text has {len(ids)} tokens, {count * context} are asked for")
    return [list(ids[n * context : (n + 1) * context]) for n in range(count)]


def scored(logits: npt.NDArray[np.float32], following: Sequence[int]) -> Scores:
    """logits [T, V]; following: the T tokens that came. In float64."""
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=1, keepdims=True)
    total = np.log(np.exp(wide).sum(axis=1))
    losses = total - wide[np.arange(len(following)), following]
    return Scores(losses, logits.argmax(axis=1))


def joined(parts: Sequence[Scores]) -> Scores:
    """One after another."""
    losses = np.concatenate([part.losses for part in parts])
    return Scores(losses, np.concatenate([part.best for part in parts]))


def by_anychip(run: Run, windows: list[list[int]]) -> Iterator[Scores]:
    """Scores of each window."""
    from whole_logits import WholeLogits

    from anychip.config import ServeConfig
    from anychip.engine.loaded import LoadedModel

    config = ServeConfig(
        model_path=str(run.model), dtype=run.dtype, quantization=run.quantization or None
    )
    context = len(windows[0])
    with LoadedModel(config) as model, WholeLogits(model, context, CHUNK) as whole:
        for window in windows:
            parts, at = [], 1
            for logits in whole.of(window[:-1]):
                parts.append(scored(logits, window[at : at + len(logits)]))
                at += len(logits)
            yield joined(parts)


def by_transformers(run: Run, windows: list[list[int]]) -> Iterator[Scores]:
    """Scores of each window. run.model: a folder."""
    import torch
    from transformers import AutoModelForCausalLM

    net = AutoModelForCausalLM.from_pretrained(run.model, dtype=getattr(torch, run.dtype)).eval()
    for window in windows:
        with torch.inference_mode():
            logits = net(torch.tensor([window[:-1]])).logits[0].float().numpy()
        yield scored(logits, window[1:])


ENGINES = {"anychip": by_anychip, "transformers": by_transformers}


def child(run: Run, ids: Path) -> Scores:
    """One run in a process of its own, which tells its progress. Raises SystemExit."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "scores.npz"
        what = [run.engine, str(run.model), run.dtype, run.quantization]
        words = ["--one", *what, str(ids), str(found)]
        line = [sys.executable, __file__, *words]
        try:
            subprocess.run(line, check=True, timeout=PATIENCE)
        except subprocess.TimeoutExpired as error:
            raise SystemExit(f"{run.name}: no result within {PATIENCE:,} s") from error
        except subprocess.CalledProcessError as error:
            raise SystemExit(f"{run.name} failed; the lines above say why") from error
        with np.load(found) as arrays:
            return Scores(arrays["losses"], arrays["best"])


def one(words: Sequence[str]) -> None:
    """What a child does: engine, model, dtype, quantization, file of windows, file for scores."""
    run = Run(words[0], Path(words[1]), words[2], words[3])
    windows = json.loads(Path(words[4]).read_text())
    parts = []
    for number, scores in enumerate(ENGINES[run.engine](run, windows), 1):
        parts.append(scores)
        shown = joined(parts).perplexity
        print(f"  window {number} of {len(windows)}: {shown:.4f}", file=sys.stderr, flush=True)
    found = joined(parts)
    np.savez(words[5], losses=found.losses, best=found.best)


def row(name: str, scores: Scores, base: Scores) -> list[str]:
    """A line of the table: perplexity, and how it stands to the base, token by token."""
    difference = scores.losses - base.losses
    error = difference.std(ddof=1) / len(difference) ** 0.5
    return [
        name,
        f"{scores.perplexity:.4f}",
        f"{scores.perplexity / base.perplexity - 1:+.3%}",
        f"{difference.mean():+.5f} ± {error:.5f}",
        f"{(scores.best == base.best).mean():.2%}",
    ]


HEAD = ["run", "perplexity", "to the base", "loss a token to the base", "same best token"]


def table(found: dict[str, Scores]) -> str:
    """Markdown; the first is the base."""
    base = next(iter(found.values()))
    lines = [HEAD, ["---"] * len(HEAD), *(row(n, scores, base) for n, scores in found.items())]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def runs(asked: argparse.Namespace) -> list[Run]:
    """The base first, each once."""
    base = Run("anychip", asked.folder, "float32")
    models = [asked.folder, *asked.model]
    ours = [Run("anychip", model, dtype) for model in models for dtype in asked.dtype]
    ours += [Run("anychip", asked.folder, d, q) for q in asked.quantization for d in asked.dtype]
    theirs = [Run("transformers", asked.folder, dtype) for dtype in asked.transformers]
    return list(dict.fromkeys([base, *ours, *theirs]))


def encoded(model: Path, whole: str) -> list[int]:
    """By AnyChip's tokenizer of the model."""
    from anychip.text.load import open_tokenizer

    return open_tokenizer(model).encode(whole, add_special_tokens=False)


def context(text: str) -> int:
    """At least two tokens: the first of a window is not scored. Raises ArgumentTypeError."""
    if count(text) < 2:
        raise argparse.ArgumentTypeError(f"{text}: a window needs 2 tokens, one to predict")
    return int(text)


def arguments() -> argparse.Namespace:
    """What was asked for."""
    from anychip.settings.model import MADE_AT_LOAD

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    dtypes = ("float32", "bfloat16")
    add("--folder", type=Path, required=True, help="the model in bfloat16 (bf16_folder.py)")
    add("--model", type=Path, nargs="*", default=[], help="the same as GGUF, in other widths")
    add("--dtype", nargs="+", choices=dtypes, default=list(dtypes), help="AnyChip computes in")
    made = "the folder's linears made so at load; none: no such run"
    add("--quantization", nargs="*", choices=MADE_AT_LOAD, default=[], help=made)
    add(
        "--transformers",
        nargs="*",
        choices=dtypes,
        default=["bfloat16"],
        help="the peer in; none: it is left out",
    )
    add("--windows", type=count, default=20, help="[20]")
    add("--context", type=context, default=1024, help="tokens of a window [1024]")
    add("--json", type=Path, help="a file for the figures")
    return parser.parse_args()


def check(asked: argparse.Namespace) -> None:
    """Raises SystemExit where a model or a package is not there."""
    need("anychip")
    for model in (asked.folder, *asked.model):
        need_model(model)
    if asked.transformers:
        need("torch", "transformers", instead="leave the peer out: --transformers without a value")


def main() -> int:
    """Run all, print the table."""
    if sys.argv[1:2] == ["--one"]:
        one(sys.argv[2:])
        return 0
    asked = arguments()
    check(asked)
    whole = text()
    try:
        windows = windows_of(
            encoded((asked.model or [asked.folder])[0], whole), asked.context, asked.windows
        )
    except ValueError as error:
        raise SystemExit(str(error)) from error
    found: dict[str, Scores] = {}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as ids:
        json.dump(windows, ids)
        ids.flush()
        for run in runs(asked):
            print(run.name, file=sys.stderr, flush=True)
            found[run.name] = child(run, Path(ids.name))
    count = asked.windows * (asked.context - 1)
    digest = hashlib.sha256(whole.encode()).hexdigest()[:16]
    print(
        f"pydoc_data.topics of Python {platform.python_version()} (sha256 {digest}), "
        f"{count:,} tokens in {asked.windows} windows of {asked.context:,}."
    )
    if count < LEAST_TOKENS:
        print(f"**Fewer than {LEAST_TOKENS:,} tokens: a trial, no result.**")
    print(f"\n{table(found)}")
    if asked.json:
        figures = {name: scores.perplexity for name, scores in found.items()}
        asked.json.write_text(json.dumps({"tokens": count, "perplexity": figures}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
