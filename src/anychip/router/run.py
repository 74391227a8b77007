"""`router`: look at the workers, pass calls on, drain on SIGTERM."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any

from anychip.config import RouterConfig
from anychip.engine.messages import StartError
from anychip.http.access_log import open_access_log
from anychip.http.answering import answer, drain
from anychip.http.descriptors import make_room
from anychip.http.exposure import open_to_all
from anychip.http.keys import Access, open_access
from anychip.http.log_setup import set_up_log
from anychip.http.observed import Observed
from anychip.http.relay import Relay
from anychip.http.serving import serve_until_signal
from anychip.http.stop import Stop
from anychip.http.telling import Telling
from anychip.http.tls import open_tls
from anychip.signals import STOPPED

from .app import build_app, route_of
from .choosing import PolicyOptions
from .desk import Desk
from .fleet import Fleet
from .picking import Picker
from .policies import policy_named
from .rules import Fallback, Rule, check_rules, parse_rule
from .tracing import RouterTracing, open_tracing
from .watching import Telemetry
from .worker_keys import read_worker_key, worker_tls

log = logging.getLogger("anychip.router")

INSTALL = "pip install 'anychip[router]'"


def serve(config: RouterConfig) -> int:
    """Pass calls on until SIGTERM or SIGINT; the exit code.

    0: ended as asked. 1: could not start (the log says why). ConfigError for rules that are none.
    """
    rules = _rules(config)
    set_up_log(config.log_level, as_json=config.log_format == "json")
    for warning in make_room(config.max_concurrent_requests, connections_a_call=2):
        log.warning("%s", warning)
    try:
        return serve_until_signal(
            config.host, config.port, partial(run_router, config, rules=rules)
        )
    except StartError as error:
        log.critical("cannot start: %s", error)
        return 1


async def run_router(
    config: RouterConfig,
    listening: socket.socket,
    stop: Stop,
    *,
    rules: list[Rule] | None = None,
    on_up: Callable[[Desk], None] | None = None,
) -> int:
    """Everything between a bound socket and the exit code. Raises StartError, ConfigError."""
    access, tls = open_access(config), open_tls(config)
    key, trusted = read_worker_key(config), worker_tls(config)
    relay = Relay(_aiohttp(), config.connect_timeout_s, config.worker_timeout_s, trusted)
    rules = _rules(config) if rules is None else rules
    for warning in _warnings(config, access.needed, key is not None):
        log.warning("%s", warning)
    telling, tracing = _open_telling(config)
    try:
        async with relay:
            desk = _open_desk(config, access, relay, Telemetry(tracing), rules)
            desk.worker_key = key
            await _answer(desk, listening, stop, tls, telling, on_up)
    finally:
        await telling.close(stop.urgent)
    return STOPPED


def _open_desk(
    config: RouterConfig, access: Access, relay: Relay, hub: Telemetry, rules: list[Rule]
) -> Desk:
    policy = policy_named(config.policy, _options(config))
    fleet = Fleet(config, relay, policy, hub)
    fallback: Fallback = "any" if config.rule_fallback == "any" else "refuse"
    picker = Picker(fleet, policy, rules, fallback)
    return Desk(config=config, access=access, relay=relay, fleet=fleet, picker=picker, hub=hub)


async def _answer(
    desk: Desk,
    listening: socket.socket,
    stop: Stop,
    tls: ssl.SSLContext | None,
    telling: Telling,
    on_up: Callable[[Desk], None] | None,
) -> None:
    """Look at the workers and answer, until told to stop and drained."""
    places = desk.config.places

    def up(url: str) -> None:
        names = ", ".join(f"{one.name} ({one.url})" for one in places)
        log.info("ready: the router passes calls on to %s; it serves at %s", names, url)
        if on_up is not None:
            on_up(desk)

    desk.fleet.headers = desk.own_headers()
    for place in places:
        desk.fleet.add(place)
    app = Observed(build_app(desk), telling, route_of)
    try:
        await answer(app, listening, stop, tls=tls, up=up, drain=lambda: _drain(desk, stop))
    finally:
        await desk.fleet.close()


def _aiohttp() -> Any:
    """The package, an extra: who only serves does not need it. Raises StartError."""
    try:
        import aiohttp  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError as error:
        raise StartError(f"a router needs aiohttp: {INSTALL}") from error
    return aiohttp


def _rules(config: RouterConfig) -> list[Rule]:
    """The checked rules. ConfigError."""
    rules = [parse_rule(text) for text in config.rule]
    check_rules(rules, {place.name: place.tags for place in config.places})
    return rules


def _options(config: RouterConfig) -> PolicyOptions:
    return PolicyOptions(
        seed=config.random_seed,
        cache_threshold=config.cache_threshold,
        balance_abs=config.balance_abs_threshold,
        balance_rel=config.balance_rel_threshold,
    )


def _open_telling(config: RouterConfig) -> tuple[Telling, RouterTracing | None]:
    access_log = open_access_log(config)
    try:
        tracing = open_tracing(config)
        return Telling(access_log, tracing), tracing
    except BaseException:
        if access_log is not None:
            access_log.close()
        raise


def _warnings(config: RouterConfig, locked: bool, own_key: bool) -> list[str]:
    told = open_to_all(config.host, locked)
    if config.balance_abs_threshold > 1:
        told.append(
            f"--balance-abs-threshold {config.balance_abs_threshold:g} is in windows of a worker,"
            " not in calls: one is passed over when it has that many windows more to do than the"
            " least loaded; 0.25 is usual"
        )
    if own_key and config.api_key_file is not None:
        told.append(
            "TENANTS SHARE THE WORKERS' PREFIX CACHES: with --worker-api-key-file workers see one"
            " client alone; leave it out, and give the workers this --api-key-file, to keep them"
            " apart"
        )
    return told


async def _drain(desk: Desk, stop: Stop) -> None:
    """Take nothing new, and come to an end."""
    desk.draining = True
    await drain(desk.live, desk.config.shutdown_timeout, stop, cut=desk.cut_all, log=log)
