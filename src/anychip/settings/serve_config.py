"""The settings of a server as one frozen object, checked however it is made."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from anychip.flags import ConfigError, check_values
from anychip.settings.chip import ChipSettings
from anychip.settings.files import FileSettings
from anychip.settings.logs import LogSettings, check_traces
from anychip.settings.memory import MemorySettings
from anychip.settings.metrics import MetricsSettings
from anychip.settings.model import ModelSettings
from anychip.settings.output import OutputSettings
from anychip.settings.paths import user_path
from anychip.settings.record import RecordSettings
from anychip.settings.schedule import ScheduleSettings
from anychip.settings.server import ServerSettings

_PATHS = (
    "model_path",
    "tokenizer_path",
    "download_dir",
    "chat_template",
    "build_dir",
    "check_ops_dir",
    "api_key_file",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_ca_certs",
    "record",
    "access_log",
    "profile_dir",
)


# A dataclass takes the fields of its last base first: this is the order of --help, backwards.
@dataclasses.dataclass(frozen=True, kw_only=True)
class ServeConfig(
    MetricsSettings,
    LogSettings,
    FileSettings,
    RecordSettings,
    ScheduleSettings,
    MemorySettings,
    OutputSettings,
    ServerSettings,
    ChipSettings,
    ModelSettings,
):
    """What one server was asked to do. None means that the engine chooses.

    Raises ConfigError on construction where a value is outside its limits.
    """

    def __post_init__(self) -> None:
        """Check every value, however this object was made."""
        check_values(self)
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
        if self.log_requests_level != 1 and not self.log_requests:
            raise ConfigError(
                "--log-requests-level: no calls are logged; add --log-requests or leave it out"
            )
        self._check_record()
        self._check_host_tier()
        self._check_policies()
        self._check_output()
        check_traces(self)
        for name in _PATHS:
            path = getattr(self, name)
            if path:
                user_path(path, "--" + name.replace("_", "-"))

    def _check_record(self) -> None:
        for name, usual in (("privacy", "tokens"), ("max_bytes", 2**30), ("keep", 4)):
            if getattr(self, f"record_{name}") != usual and not self.record:
                flag = f"--record-{name.replace('_', '-')}"
                raise ConfigError(f"{flag}: nothing is recorded; add --record or leave it out")

    def _check_policies(self) -> None:
        """Refuse what would have no effect."""
        usual = ScheduleSettings()
        for name in ("disable_priority_preemption", "priority_scheduling_preemption_threshold"):
            changed = getattr(self, name) != getattr(usual, name)
            if changed and self.schedule_policy != "priority":
                raise ConfigError(
                    f"--{name.replace('_', '-')}: nobody is preempted under --schedule-policy "
                    f"{self.schedule_policy}; use priority there or leave it out"
                )
        without_cache = {
            "--schedule-policy": self.schedule_policy == "lpm" and self.schedule_policy,
            "--radix-eviction-policy": self.radix_eviction_policy != "lru"
            and self.radix_eviction_policy,
        }
        for flag, value in without_cache.items():
            if value and self.disable_radix_cache:
                raise ConfigError(
                    f"{flag}: {value}: there is no prefix cache; leave out --disable-radix-cache "
                    "or this flag"
                )

    def _check_output(self) -> None:
        for name in ("constrained_json_disable_any_whitespace", "disable_jump_forward"):
            if getattr(self, name) and self.grammar_backend == "none":
                raise ConfigError(
                    f"--{name.replace('_', '-')}: there is no structured output; leave out "
                    "--grammar-backend none or this flag"
                )

    def _check_host_tier(self) -> None:
        if not self.enable_hierarchical_cache:
            for name in ("hicache_ratio", "hicache_size"):
                if getattr(self, name):
                    raise ConfigError(
                        f"--{name.replace('_', '-')}: nothing is kept in host memory; add "
                        "--enable-hierarchical-cache or leave it out"
                    )
        elif self.disable_radix_cache:
            raise ConfigError(
                "--enable-hierarchical-cache: it keeps what the prefix cache evicts; leave out "
                "--disable-radix-cache or this flag"
            )

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
