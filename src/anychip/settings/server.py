"""Settings of HTTP and of the life of the server."""

from __future__ import annotations

import dataclasses

from anychip.flags import Flag, declared


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Where it listens, who may ask, and how long things may take."""

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
    api_key_file: str | None = declared(
        None,
        Flag(
            ("--api-key-file",),
            "server",
            "keys of several tenants, lines 'NAME KEY'; mode 0600",
            "FILE",
            differs="has one key",
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
    ssl_certfile: str | None = declared(
        None,
        Flag(("--ssl-certfile",), "server", "certificate chain, PEM: serve HTTPS", "FILE"),
    )
    ssl_keyfile: str | None = declared(
        None,
        Flag(("--ssl-keyfile",), "server", "its private key, PEM [in --ssl-certfile]", "FILE"),
    )
    ssl_keyfile_password: str | None = declared(
        None,
        Flag(
            ("--ssl-keyfile-password",),
            "server",
            "password of the key (prefer ANYCHIP_SSL_KEYFILE_PASSWORD)",
            "PASSWORD",
            secret=True,
        ),
    )
    ssl_ca_certs: str | None = declared(
        None,
        Flag(
            ("--ssl-ca-certs",),
            "server",
            "clients must bring a certificate that one of these signed, PEM",
            "FILE",
            differs="clients are not asked",
        ),
    )
    max_request_bytes: int = declared(
        32 * 2**20,
        Flag(("--max-request-bytes",), "server", "longest request body", low=1024, high=2**40),
    )
    max_concurrent_requests: int = declared(
        4096,
        Flag(
            ("--max-concurrent-requests",),
            "server",
            "calls that are answered at once, 503 beyond",
            low=1,
            differs="no limit",
        ),
    )
    max_tokens_per_call: int = declared(
        2**22,
        Flag(
            ("--max-tokens-per-call",),
            "server",
            "tokens that one call may ask for: prompts x n x max_tokens",
            low=1,
            differs="no limit",
        ),
    )
    max_stored_responses: int = declared(
        1000,
        Flag(
            ("--max-stored-responses",),
            "server",
            "finished /v1/responses kept for each tenant; 0 keeps none",
            low=0,
        ),
    )
    max_stored_response_bytes: int = declared(
        64 * 2**20,
        Flag(
            ("--max-stored-response-bytes",),
            "server",
            "bytes of kept /v1/responses and their conversations for each tenant",
            low=1024,
            high=2**40,
        ),
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
