"""Settings of whatever answers HTTP: a server, or a router before servers."""

from __future__ import annotations

import dataclasses

from anychip.flags import Flag, declared


@dataclasses.dataclass(frozen=True, kw_only=True)
class HttpSettings:
    """Where it listens, who may ask, and how much it takes."""

    host: str = declared(
        "127.0.0.1", Flag(("--host",), "server", "address to listen on", "ADDRESS")
    )
    port: int = declared(
        30000,
        Flag(("--port",), "server", "port to listen on, 0: any free one", low=0, high=65535),
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
