"""Every setting of a server, declared once: default, flag, limits and help line together."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from anychip.flags import ConfigError, Flag, check, declared, settings_of

_FLOATS: Mapping[str, str] = {
    "half": "float16",
    "fp16": "float16",
    "bf16": "bfloat16",
    "float": "float32",
    "fp32": "float32",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServeConfig:
    """What one server was asked to do. None means that the engine chooses.

    Raises ConfigError on construction where a value is outside its limits.
    """

    # model
    model_path: str | None = declared(
        None,
        Flag(
            ("--model-path", "--model"),
            "model",
            "folder of safetensors or a .gguf file [the demo model]",
            "PATH",
            differs="required, and may be a hub name: download first",
        ),
    )
    tokenizer_path: str | None = declared(
        None,
        Flag(("--tokenizer-path",), "model", "folder or file of the tokenizer [the model]", "PATH"),
    )
    load_format: str = declared(
        "auto",
        Flag(
            ("--load-format",),
            "model",
            "format of the weights",
            "FORMAT",
            choices=("auto", "safetensors", "gguf"),
            way_out="convert the weights to safetensors or GGUF",
        ),
    )
    context_length: int | None = declared(
        None,
        Flag(("--context-length",), "model", "longest sequence, tokens [the model's]", low=1),
    )
    dtype: str = declared(
        "auto",
        Flag(
            ("--dtype",),
            "model",
            "compute type; auto: float32 for float32 models, else the chip's first",
            "TYPE",
            choices=("auto", "float32", "bfloat16", "float16"),
            spelled=_FLOATS,
            differs="auto is the model's own",
        ),
    )
    chat_template: str | None = declared(
        None,
        Flag(("--chat-template",), "model", "Jinja file for chat [the model's]", "FILE"),
    )
    # chip
    backend: str = declared(
        "cpu",
        Flag(("--backend",), "chip", "chip to run on, see `anychip chips`", "CHIP"),
    )
    device_index: int = declared(
        0,
        Flag(("--device-index", "--base-gpu-id"), "chip", "which device of the chip", low=0),
    )
    chip_option: dict[str, str] = dataclasses.field(
        default_factory=dict,
        metadata={
            "flag": Flag(("--chip-option",), "chip", "option of the chip, repeatable", "NAME=VALUE")
        },
    )
    op: dict[str, str] = dataclasses.field(
        default_factory=dict,
        metadata={
            "flag": Flag(
                ("--op",), "chip", "implementation of an operator, repeatable", "NAME=IMPL"
            )
        },
    )
    allow_host_ops: bool = declared(
        False,
        Flag(("--allow-host-ops",), "chip", "operators that the chip lacks run on the host"),
    )
    tp_size: int = declared(
        1,
        Flag(
            ("--tp-size", "--tensor-parallel-size", "--tp"),
            "chip",
            "devices that share the model; only 1 for now",
            low=1,
            high=1,
            way_out="tensor parallelism is not there yet: use 1, or one server a device",
        ),
    )
    # checks
    check_ops: bool = declared(
        False,
        Flag(
            ("--check-ops",), "checks", "compare every operator of every step with the oracle: slow"
        ),
    )
    check_ops_dir: str | None = declared(
        None,
        Flag(
            ("--check-ops-dir",),
            "checks",
            "folder for operator calls that diverge [CACHE_DIR/divergences]",
            "DIR",
        ),
    )
    # server
    host: str = declared(
        "127.0.0.1", Flag(("--host",), "server", "address to listen on", "ADDRESS")
    )
    port: int = declared(
        30000,
        Flag(("--port",), "server", "port to listen on, 0: any free one", low=0, high=65535),
    )
    served_model_name: str | None = declared(
        None,
        Flag(("--served-model-name",), "server", "name in /v1/models [the file's name]", "NAME"),
    )
    api_key: str | None = declared(
        None,
        Flag(
            ("--api-key",),
            "server",
            "key that clients must send (prefer ANYCHIP_API_KEY)",
            "KEY",
            secret=True,
        ),
    )
    admin_api_key: str | None = declared(
        None,
        Flag(
            ("--admin-api-key",),
            "server",
            "key of admin actions (prefer ANYCHIP_ADMIN_API_KEY)",
            "KEY",
            secret=True,
        ),
    )
    max_request_bytes: int = declared(
        32 * 2**20,
        Flag(("--max-request-bytes",), "server", "longest request body", low=1024, high=2**40),
    )
    stream_interval: int = declared(
        1, Flag(("--stream-interval",), "server", "tokens between two stream events", low=1)
    )
    enable_cache_report: bool = declared(
        True,
        Flag(
            ("--enable-cache-report",),
            "server",
            "cached tokens in usage: always on",
            differs="off",
        ),
    )
    enable_metrics: bool = declared(
        True, Flag(("--enable-metrics",), "server", "GET /metrics: always on", differs="off")
    )
    skip_server_warmup: bool = declared(
        False, Flag(("--skip-server-warmup",), "server", "ready without a first trial request")
    )
    watchdog_timeout: float = declared(
        300.0,
        Flag(
            ("--watchdog-timeout",),
            "server",
            "a step longer than this ends the engine",
            "SECONDS",
            low=0.001,
        ),
    )
    shutdown_timeout: float = declared(
        30.0,
        Flag(
            ("--shutdown-timeout",),
            "server",
            "time for running requests after SIGTERM",
            "SECONDS",
            low=0,
            differs="no limit",
        ),
    )
    # memory
    mem_fraction_static: float | None = declared(
        None,
        Flag(
            ("--mem-fraction-static",),
            "memory",
            "share of the memory to use [0.85; host memory: half of what is free]",
            "SHARE",
            low=0.01,
            high=1.0,
            differs="guessed from the device's size",
        ),
    )
    max_total_tokens: int | None = declared(
        None, Flag(("--max-total-tokens",), "memory", "tokens in the KV cache [what fits]", low=1)
    )
    page_size: int | None = declared(
        None,
        Flag(
            ("--page-size",),
            "memory",
            "tokens in a page of the KV cache [the chip's]",
            low=1,
            high=65536,
            differs="1",
        ),
    )
    kv_cache_dtype: str = declared(
        "auto",
        Flag(
            ("--kv-cache-dtype",),
            "memory",
            "element type of the KV cache",
            "TYPE",
            choices=("auto", "float32", "bfloat16", "float16"),
            spelled=_FLOATS,
        ),
    )
    disable_radix_cache: bool = declared(
        False, Flag(("--disable-radix-cache",), "memory", "no reuse of common prefixes")
    )
    radix_eviction_policy: str = declared(
        "lru",
        Flag(
            ("--radix-eviction-policy",),
            "memory",
            "which cached pages go first",
            "POLICY",
            choices=("lru",),
            way_out="other policies are not there yet",
        ),
    )
    # schedule
    max_running_requests: int | None = declared(
        None,
        Flag(
            ("--max-running-requests",),
            "schedule",
            "requests that run at once [64]",
            low=1,
            high=65536,
            differs="guessed from the cache's size",
        ),
    )
    max_queued_requests: int | None = declared(
        None,
        Flag(
            ("--max-queued-requests",), "schedule", "waiting requests before 503 [no limit]", low=1
        ),
    )
    max_prefill_tokens: int = declared(
        16384, Flag(("--max-prefill-tokens",), "schedule", "prefill tokens in one step", low=1)
    )
    chunked_prefill_size: int | None = declared(
        None,
        Flag(
            ("--chunked-prefill-size",),
            "schedule",
            "tokens of one prompt in a step, -1: no chunks [the chip's]",
            low=-1,
            differs="guessed from the device's size",
        ),
    )
    schedule_policy: str = declared(
        "fcfs",
        Flag(
            ("--schedule-policy",),
            "schedule",
            "which waiting request is next",
            "POLICY",
            choices=("fcfs",),
            way_out="other policies are not there yet",
        ),
    )
    random_seed: int | None = declared(
        None,
        Flag(
            ("--random-seed",),
            "schedule",
            "seed of requests that bring none [a new one each start]",
            low=0,
            high=2**63 - 1,
        ),
    )
    # files and logging
    cache_dir: str = declared(
        "~/.cache/anychip",
        Flag(("--cache-dir",), "files and logging", "folder for models and built kernels", "DIR"),
    )
    build_dir: str | None = declared(
        None,
        Flag(
            ("--build-dir",),
            "files and logging",
            "folder for built kernels [CACHE_DIR/build]",
            "DIR",
        ),
    )
    log_level: str = declared(
        "info",
        Flag(
            ("--log-level",),
            "files and logging",
            "least severe message that is logged",
            "LEVEL",
            choices=("debug", "info", "warning", "error", "critical"),
        ),
    )
    config_file: str | None = declared(
        None, Flag(("--config",), "files and logging", "YAML file with these flags as keys", "FILE")
    )
    # Test hooks, from the environment alone: retract one request every N steps; miss every prefix.
    force_retract_every: int = declared(
        0, Flag((), "test hooks", "", low=0, env="ANYCHIP_TEST_RETRACT")
    )
    force_radix_miss: bool = declared(
        False, Flag((), "test hooks", "", env="ANYCHIP_RADIX_FORCE_MISS")
    )

    def __post_init__(self) -> None:
        """Check every value, however this object was made."""
        for setting in settings_of(type(self)):
            value = getattr(self, setting.field)
            if value not in (None, "", {}):
                check(setting.flag, value, (setting.flag.names or (setting.flag.env,))[0])
        for name in ("enable_cache_report", "enable_metrics"):
            if not getattr(self, name):
                flag = "--" + name.replace("_", "-")
                raise ConfigError(f"{flag}: false: it is always on here; leave it out")
        if self.chunked_prefill_size == 0:
            raise ConfigError("--chunked-prefill-size: 0 is not a size; use -1 for no chunks")
        if self.check_ops_dir and not self.check_ops:
            raise ConfigError(
                "--check-ops-dir: nothing is checked; add --check-ops or leave it out"
            )
        for name in ("model_path", "tokenizer_path", "chat_template", "build_dir", "check_ops_dir"):
            path = getattr(self, name)
            if path:
                user_path(path, "--" + name.replace("_", "-"))

    @property
    def cache_path(self) -> Path:
        """The folder that keeps models and built kernels between runs. Raises ConfigError."""
        return user_path(self.cache_dir, "--cache-dir")

    @property
    def proved_path(self) -> Path:
        """Folder of the records of confirmed guesses."""
        return self.cache_path / "proved"

    @property
    def build_path(self) -> Path:
        """The folder that keeps built kernels. Raises ConfigError."""
        if self.build_dir:
            return user_path(self.build_dir, "--build-dir")
        return self.cache_path / "build"

    @property
    def check_ops_path(self) -> Path:
        """The folder for operator calls that diverge. Raises ConfigError."""
        if self.check_ops_dir:
            return user_path(self.check_ops_dir, "--check-ops-dir")
        return self.cache_path / "divergences"


def user_path(text: str, name: str) -> Path:
    """The path that setting `name` gives, `~` and `~user` as home folders.

    Raises ConfigError where there is no such home: HOME may be unset for a user without a name.
    """
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        home = text.partition("/")[0]
        raise ConfigError(
            f"{name}: {text}: the home folder of {home} is not known; give a full path to {name}"
        ) from error
