"""What server tests share: a byte-level model folder, and a server in a thread of this process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

import anychip
from anychip.config import ServeConfig
from anychip.engine.client import EngineClient
from anychip.engine.supervisor import RestartPolicy
from anychip.server.run import run_server
from anychip.text.token_table import byte_alphabet
from in_thread import InThread, in_thread

_FOLDERS = (Path(__file__).parent, Path(anychip.__file__).parents[1])
ENVIRONMENT = {"PYTHONPATH": os.pathsep.join(map(str, _FOLDERS)), "PATH": "/usr/bin:/bin"}
"""Of processes that tests start: they import the package that the tests do."""
BUILDER = "scripted_engine:build"
TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'bad' %}{{ raise_exception('no role bad') }}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}<|im_start|>assistant"
    "{{ ending | default('\n') }}"
)


def model_folder(path: Path) -> Path:
    """A model folder whose token ids are the bytes of the text."""
    vocab = dict(byte_alphabet())
    core = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken("<|im_start|>"), AddedToken("<|im_end|>")])
    path.mkdir(parents=True, exist_ok=True)
    core.save(str(path / "tokenizer.json"))
    named = {"eos_token": "<|im_end|>", "chat_template": TEMPLATE}
    (path / "tokenizer_config.json").write_text(json.dumps(named))
    return path


def config_for(folder: Path, **changes) -> ServeConfig:
    values = {"host": "127.0.0.1", "port": 0, "skip_server_warmup": True, "shutdown_timeout": 5.0}
    return ServeConfig(model_path=str(folder), **{**values, **changes})


def bearer(key: str) -> dict[str, bytes]:
    return {"authorization": f"Bearer {key}".encode()}


class Running(InThread):
    """A server in a thread."""

    def __init__(self, config: ServeConfig, policy: RestartPolicy | None, builder: str) -> None:
        super().__init__(config)
        self.policy, self.builder = policy, builder

    async def serve(self) -> int:
        return await run_server(
            self.config,
            EngineClient(self.config, self.builder, policy=self.policy),
            self.socket,
            self.stop,
            on_ready=self._on_ready,
        )

    def _on_ready(self, service) -> None:
        self.service = service
        self.ready.set()


def running(config: ServeConfig, policy: RestartPolicy | None = None, builder: str = BUILDER):
    return in_thread(Running(config, policy, builder))


def wait_until(condition, limit_s: float = 30.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("waited in vain")
        time.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def children(pid: int) -> list[int]:
    """The engine first: it is the child of the main thread."""
    tasks = sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda task: int(task.name) != pid)
    found = []
    for task in tasks:
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended meanwhile
            found += map(int, (task / "children").read_text().split())
    return found


MAIN = """
import sys
from anychip.signals import let_go, take_signals
take_signals()
from anychip.config import read_config
from anychip.server.run import serve
code = serve(read_config(sys.argv[1:], {}), "scripted_engine:build")
let_go()
sys.exit(code)
"""
COMMAND = (sys.executable, "-c", MAIN, "--model-path")


@contextmanager
def server_process(folder: Path, *flags: str, **environ: str):
    """The real `serve` in a process of its own, on a free port; yields (process, url)."""
    process = subprocess.Popen(
        [*COMMAND, str(folder), "--port", "0", *flags],
        stderr=subprocess.PIPE,
        env={**ENVIRONMENT, **environ},
        text=True,
    )
    try:
        yield process, _wait_ready(process)
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def _wait_ready(process: subprocess.Popen) -> str:
    lines = []
    for line in process.stderr:
        lines.append(line)
        if "ready:" in line:
            return line.split("serves at ")[1].strip()
    raise AssertionError("never ready: " + "".join(lines))
