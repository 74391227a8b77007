"""/start_profile and /stop_profile: a Chrome trace of what the engine does. Admin actions."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from anychip.config import ServeConfig
from anychip.engine.client import EngineUnavailable
from anychip.engine.messages import ProfileEnded, ProfileWish
from anychip.http.auth import require_admin
from anychip.http.errors import ApiError, bad_request, server_error, unavailable
from anychip.http.stream import json_response
from anychip.server.openai_protocol import NotYet
from anychip.server.service import Service
from anychip.server.validation import convert, read_object, within
from anychip.settings import user_path

MOST_SECONDS, MOST_STEPS = 60.0, 10_000
"""A profile ends by itself after so long, or so many steps."""

_OURS = ("PYTHON", "OPERATORS", "COPIES")
ACTIVITIES = {**{name: name for name in _OURS}, "CPU": "PYTHON", "GPU": "OPERATORS"}
"""What may be asked for, and what that is; the last two are words of SGLang's clients."""


class ProfileRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Body of /start_profile, as SGLang's.

    output_dir: a folder in --profile-dir, which is used where none is named. num_steps, seconds:
    when the profile ends by itself; whichever comes first. activities: "PYTHON" (or "CPU":
    stacks), "OPERATORS" (or "GPU": each, waited for), "COPIES"; all of them where none is named.
    profile_id: how the file's name begins.
    """

    output_dir: str | None = None
    num_steps: int | None = None
    seconds: float | None = None
    activities: list[str] | None = None
    profile_id: str | None = None


PROFILE_NOT_YET: NotYet = {
    "start_step": (),
    "profile_by_stage": (False,),
    "profile_stages": (),
    "merge_profiles": (False,),
    "profile_prefix": (),
    "with_stack": (True,),
    "record_shapes": (True,),
}


class ProfileStarted(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of /start_profile. path: of the file that the profile will become."""

    success: bool
    message: str
    path: str


class ProfileStopped(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of /stop_profile. nbytes: of the file, which is complete."""

    success: bool
    message: str
    path: str
    steps: int
    nbytes: int


async def start_profile(request: Request) -> Response:
    """Begin a profile; it ends by itself too."""
    require_admin(request)
    service: Service = request.app.state.service
    body = await _body(request, service.config.max_request_bytes)
    wish = wish_of(convert(body, ProfileRequest, PROFILE_NOT_YET), service.config)
    try:
        await service.client.start_profile(wish)
    except ValueError as error:
        raise bad_request(str(error), code="profile_runs") from error
    except EngineUnavailable as error:
        raise unavailable(str(error), "engine_unavailable") from error
    return json_response(
        ProfileStarted(success=True, message="the profile has begun", path=wish.path)
    )


async def stop_profile(request: Request) -> Response:
    """End the profile, and answer once its file is written."""
    require_admin(request)
    service: Service = request.app.state.service
    try:
        ended = await service.client.stop_profile()
    except ValueError as error:
        last = service.client.last_profile
        told = "" if last is None else f"; {_last(last)}"
        raise bad_request(f"{error}{told}", code="no_profile") from error
    except EngineUnavailable as error:
        raise unavailable(str(error), "engine_unavailable") from error
    if ended.error:
        raise server_error(f"there is no profile: {ended.error}", "profile_failed")
    text = "open it in chrome://tracing or ui.perfetto.dev"
    return json_response(
        ProfileStopped(
            success=True, message=text, path=ended.path, steps=ended.steps, nbytes=ended.nbytes
        )
    )


def _last(ended: ProfileEnded) -> str:
    if ended.error:
        return f"the last one failed and has no file: {ended.error}"
    return f"the last one became {ended.path} ({ended.reason})"


async def _body(request: Request, limit: int) -> dict[str, object]:
    """The body's object; nothing asked for where there is no body."""
    headers = request.headers
    if headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers:
        return {}
    return await read_object(request, limit)


def wish_of(asked: ProfileRequest, config: ServeConfig) -> ProfileWish:
    """What the engine is told. ApiError 400."""
    if asked.num_steps is not None:
        within("num_steps", asked.num_steps, 1, MOST_STEPS, "leave it out to end by time")
    seconds = MOST_SECONDS if asked.seconds is None else asked.seconds
    within("seconds", seconds, 0.1, MOST_SECONDS, f"{MOST_SECONDS:g} where it is left out")
    unknown = [name for name in asked.activities or () if name not in ACTIVITIES]
    if unknown:
        known = ", ".join(ACTIVITIES)
        raise bad_request(f"activities names {unknown[0]!r}; known are {known}", "activities")
    wanted = {ACTIVITIES[name] for name in asked.activities or ACTIVITIES}
    return ProfileWish(
        path=str(_folder(asked.output_dir, config) / _name(asked.profile_id)),
        seconds=seconds,
        steps=asked.num_steps,
        activities=tuple(sorted(wanted)),
    )


def _folder(asked: str | None, config: ServeConfig) -> Path:
    """Where the file goes: in --profile-dir, never beside it."""
    if config.profile_dir is None:
        raise ApiError(
            400,
            "this server writes no profiles; start it with --profile-dir DIR",
            code="no_profile_dir",
        )
    root = user_path(config.profile_dir, "--profile-dir").resolve()
    if asked is None:
        return root
    if "\0" in asked:
        raise bad_request("output_dir has a zero byte", "output_dir")
    folder = (root / asked).resolve()
    if not folder.is_relative_to(root):
        raise bad_request(
            f"output_dir {asked!r} is not in --profile-dir {root}; name a folder in it, or none",
            "output_dir",
        )
    return folder


def _name(asked: str | None) -> str:
    given = "profile" if asked is None else asked
    if not (
        0 < len(given) <= 64 and all(c.isascii() and (c.isalnum() or c in "-_") for c in given)
    ):
        raise bad_request(
            "profile_id must be 1 to 64 letters, digits, '-' and '_': it begins the file's name",
            "profile_id",
        )
    return f"{given}-{time.time_ns() // 1_000_000}.trace.json"
