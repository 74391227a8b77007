"""Settings of the form of the log, of the access log, of traces and of profiles."""

from __future__ import annotations

import dataclasses

from anychip.flags import ConfigError, Flag, declared

_GROUP = "logs and traces"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CallLogSettings:
    """What is told of calls beside their answers, and where to."""

    log_format: str = declared(
        "text",
        Flag(
            ("--log-format",),
            _GROUP,
            "log and access log: lines to read, or one JSON object a line",
            "NAME",
            choices=("text", "json"),
        ),
    )
    access_log: str | None = declared(
        None,
        Flag(("--access-log",), _GROUP, "a line for every call goes here; -: to stdout", "FILE"),
    )
    otlp_traces_endpoint: str | None = declared(
        None,
        Flag(
            ("--otlp-traces-endpoint",),
            _GROUP,
            "OpenTelemetry collector that gets traces, as http://127.0.0.1:4318/v1/traces",
            "URL",
        ),
    )
    otlp_service_name: str = declared(
        "anychip",
        Flag(("--otlp-service-name",), _GROUP, "service.name of the traces", "NAME"),
    )
    trace_sample: float = declared(
        1.0,
        Flag(
            ("--trace-sample",),
            _GROUP,
            "share of calls that are traced; a caller's own decision wins",
            "SHARE",
            low=0,
            high=1,
        ),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogSettings(CallLogSettings):
    """The same of a server, which can be profiled too."""

    profile_dir: str | None = declared(
        None,
        Flag(
            ("--profile-dir",),
            _GROUP,
            "folder for what /start_profile writes; without it profiles are refused",
            "DIR",
            differs="is given in the request",
        ),
    )


def check_traces(settings: CallLogSettings) -> None:
    """ConfigError for what would have no effect, and for a collector that cannot be reached."""
    endpoint = settings.otlp_traces_endpoint
    if endpoint is None:
        for name in ("otlp_service_name", "trace_sample"):
            if getattr(settings, name) != getattr(CallLogSettings, name):
                raise ConfigError(
                    f"--{name.replace('_', '-')}: nothing is traced; add "
                    "--otlp-traces-endpoint or leave it out"
                )
    elif not endpoint.startswith(("http://", "https://")):
        raise ConfigError(
            f"--otlp-traces-endpoint: {endpoint} does not begin with http:// or https://; "
            "traces are sent as OTLP over HTTP, which collectors take at port 4318"
        )
