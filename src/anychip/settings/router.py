"""The settings of a router as one frozen object, checked however it is made."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import NamedTuple

from anychip.address import server_url
from anychip.flags import ConfigError, Flag, check_values, declared
from anychip.settings.files import BasicSettings
from anychip.settings.http import HttpSettings
from anychip.settings.logs import CallLogSettings, check_traces
from anychip.settings.paths import user_path

_WORKERS, _CHOICE, _HEALTH = "workers", "choice of a worker", "health and retries"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PATHS = (
    "worker_api_key_file",
    "worker_ca_certs",
    "api_key_file",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_ca_certs",
    "access_log",
)


class WorkerPlace(NamedTuple):
    """A worker as the user gave it. url: without a slash at its end, and without /v1."""

    name: str
    url: str
    tags: tuple[str, ...] = ()
    weight: float = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class HealthSettings:
    """When a worker is asked how it is, when it is sick, and what is tried again."""

    health_check_interval_s: float = declared(
        5.0,
        Flag(
            ("--health-check-interval-s", "--health-check-interval-secs"),
            _HEALTH,
            "how often each worker is asked whether it is ready",
            "SECONDS",
            low=0.01,
            differs="60",
        ),
    )
    health_check_timeout_s: float = declared(
        5.0,
        Flag(
            ("--health-check-timeout-s", "--health-check-timeout-secs"),
            _HEALTH,
            "how long a worker may take to say so",
            "SECONDS",
            low=0.01,
        ),
    )
    breaker_failures: int = declared(
        3,
        Flag(
            ("--breaker-failures", "--cb-failure-threshold"),
            _HEALTH,
            "failures in a row after which a worker is sick and gets no calls",
            low=1,
            differs="10",
        ),
    )
    breaker_successes: int = declared(
        2,
        Flag(
            ("--breaker-successes", "--cb-success-threshold"),
            _HEALTH,
            "good answers in a row after which a sick worker gets calls again",
            low=1,
            differs="3",
        ),
    )
    connect_timeout_s: float = declared(
        5.0,
        Flag(
            ("--connect-timeout-s",),
            _HEALTH,
            "how long a worker may take to accept a connection",
            "SECONDS",
            low=0.01,
        ),
    )
    worker_timeout_s: float = declared(
        1800.0,
        Flag(
            ("--worker-timeout-s", "--request-timeout-secs"),
            _HEALTH,
            "how long a worker may be silent within a call",
            "SECONDS",
            low=0.01,
        ),
    )
    retries: int = declared(
        2,
        Flag(
            ("--retries", "--retry-max-retries"),
            _HEALTH,
            "other workers that get a call which the one before has surely not begun",
            low=0,
            high=100,
            differs="5",
        ),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChoiceSettings:
    """Who answers which call."""

    policy: str = declared(
        "cache_aware",
        Flag(
            ("--policy",),
            _CHOICE,
            "who answers a call",
            "NAME",
            choices=(
                "cache_aware",
                "least_load",
                "power_of_two",
                "round_robin",
                "random",
                "consistent",
            ),
        ),
    )
    rule: tuple[str, ...] = declared(
        (),
        Flag(
            ("--rule",),
            _CHOICE,
            "which workers get which calls, as 'prompt_tokens>4096 & choices>1: big, @slow';"
            " the first that applies counts",
            "RULE",
        ),
    )
    rule_fallback: str = declared(
        "refuse",
        Flag(
            ("--rule-fallback",),
            _CHOICE,
            "what becomes of a call whose rule's workers are all away: 503, or any worker",
            "NAME",
            choices=("refuse", "any"),
        ),
    )
    cache_threshold: float = declared(
        0.1,
        Flag(
            ("--cache-threshold",),
            _CHOICE,
            "cache_aware: share of a prompt that a worker must have to be taken for it",
            "SHARE",
            low=0,
            high=1,
            differs="0.3",
        ),
    )
    balance_abs_threshold: float = declared(
        0.25,
        Flag(
            ("--balance-abs-threshold",),
            _CHOICE,
            "cache_aware: how far above the least load a worker may be, as a share of its window",
            "SHARE",
            low=0,
            high=1e6,
            differs="64 calls",
        ),
    )
    balance_rel_threshold: float = declared(
        1.5,
        Flag(
            ("--balance-rel-threshold",),
            _CHOICE,
            "cache_aware: the same as a multiple of the least load",
            "FACTOR",
            low=1,
            high=1e6,
        ),
    )
    random_seed: int = declared(
        0, Flag(("--random-seed",), _CHOICE, "seed of what a policy draws by chance", low=0)
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """Which servers there are."""

    worker: dict[str, str] = dataclasses.field(
        default_factory=dict,
        metadata={
            "flag": Flag(("--worker",), _WORKERS, "a server and its name, repeatable", "NAME=URL")
        },
    )
    worker_urls: tuple[str, ...] = declared(
        (), Flag(("--worker-urls",), _WORKERS, "servers whose names are HOST:PORT", "URL")
    )
    worker_tags: dict[str, str] = dataclasses.field(
        default_factory=dict,
        metadata={
            "flag": Flag(
                ("--worker-tags",),
                _WORKERS,
                "tags of a worker, for rules, repeatable",
                "NAME=TAG+TAG",
            )
        },
    )
    worker_weight: dict[str, str] = dataclasses.field(
        default_factory=dict,
        metadata={
            "flag": Flag(
                ("--worker-weight",), _WORKERS, "work for it beside the others [1]", "NAME=WEIGHT"
            )
        },
    )
    worker_api_key_file: str | None = declared(
        None,
        Flag(
            ("--worker-api-key-file",),
            _WORKERS,
            "file with the key that workers want; mode 0600 [the client's own is passed on]",
            "FILE",
        ),
    )
    worker_ca_certs: str | None = declared(
        None,
        Flag(
            ("--worker-ca-certs",), _WORKERS, "who signs https workers, PEM [the system's]", "FILE"
        ),
    )


# A dataclass takes the fields of its last base first: this is the order of --help, backwards.
@dataclasses.dataclass(frozen=True, kw_only=True)
class RouterConfig(
    CallLogSettings, BasicSettings, HttpSettings, HealthSettings, ChoiceSettings, WorkerSettings
):
    """What one router was asked to do. Raises ConfigError on construction where a value is outside
    its limits."""

    def __post_init__(self) -> None:
        """Check every value, however this object was made."""
        check_values(self)
        check_traces(self)
        places = self.places
        if not places:
            raise ConfigError(
                "--worker: there is no server to pass calls on to; give --worker NAME=URL for each"
            )
        for name in _PATHS:
            path = getattr(self, name)
            if path:
                user_path(path, "--" + name.replace("_", "-"))
        if self.worker_ca_certs and not any(one.url.startswith("https:") for one in places):
            raise ConfigError(
                "--worker-ca-certs: no worker is asked over https; leave it out, or write https://"
            )
        if self.rule_fallback != "refuse" and not self.rule:
            raise ConfigError("--rule-fallback: there is no rule; add --rule or leave it out")
        self._check_policy()

    def _check_policy(self) -> None:
        for name in ("cache_threshold", "balance_abs_threshold", "balance_rel_threshold"):
            if getattr(self, name) != getattr(type(self), name) and self.policy != "cache_aware":
                raise ConfigError(
                    f"--{name.replace('_', '-')}: it is for --policy cache_aware, not for"
                    f" {self.policy}; leave one of them out"
                )

    @property
    def places(self) -> tuple[WorkerPlace, ...]:
        """The workers in their order. Raises ConfigError."""
        found: dict[str, str] = {}
        for name, url in self.worker.items():
            found[worker_name(name, "--worker")] = worker_url(url, f"--worker: {name}")
        for url in self.worker_urls:
            place = worker_url(url, "--worker-urls")
            name = place.partition("://")[2]
            if name in found:
                raise ConfigError(f"--worker-urls: {url} is given twice")
            found[name] = place
        seen: dict[str, str] = {}
        for name, place in found.items():
            if place in seen:
                raise ConfigError(
                    f"--worker: {name} and {seen[place]} are the same server, {place}; give it once"
                )
            seen[place] = name
        self._check_named(found)
        return tuple(
            WorkerPlace(
                name,
                url,
                tags_of(self.worker_tags.get(name, ""), f"--worker-tags: {name}"),
                weight_of(self.worker_weight.get(name, "1"), f"--worker-weight: {name}"),
            )
            for name, url in found.items()
        )

    def _check_named(self, workers: dict[str, str]) -> None:
        for flag, given in (
            ("--worker-tags", self.worker_tags),
            ("--worker-weight", self.worker_weight),
        ):
            for name in given:
                if name not in workers:
                    known = ", ".join(workers) or "none"
                    raise ConfigError(f"{flag}: there is no worker {name!r}; workers: {known}")


def worker_name(name: str, where: str) -> str:
    """The checked name of a worker. Raises ConfigError."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{where}: {name!r} is no name; use 1 to 64 letters, digits, '.', '_' and '-'"
        )
    return name


def worker_url(url: str, where: str) -> str:
    """A worker's address, without /v1: clients name that themselves. Raises ConfigError."""
    if "," in url:
        raise ConfigError(
            f"{where}: {url!r}: one address at a time: repeat --worker NAME=URL, or put spaces"
            " between those of --worker-urls"
        )
    parts = server_url(url, where, "--worker-api-key-file")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}".removesuffix("/v1")


def tags_of(text: str, where: str) -> tuple[str, ...]:
    """Tags with + between. Raises ConfigError."""
    tags = tuple(text.split("+")) if text else ()
    for tag in tags:
        if not _NAME.fullmatch(tag):
            raise ConfigError(
                f"{where}: {tag!r} is no tag; use letters, digits, '.', '_' and '-', with +"
                " between two"
            )
    return tags


def weight_of(text: str, where: str) -> float:
    """A weight. Raises ConfigError."""
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not 0.001 <= weight <= 1000:  # what is no number is not in there either
        raise ConfigError(f"{where}: {text!r} is no weight from 0.001 to 1000")
    return weight
