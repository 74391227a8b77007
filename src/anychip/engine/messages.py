"""What the server and the engine process say to each other: msgpack structs, never pickle.

A frame holds one message. The server sends one `Commands` a loop turn; the engine answers with one
`StepMessage` a step, which is also its heartbeat.
"""

from __future__ import annotations

import msgspec

from anychip.engine.evidence import ProcessSeen
from anychip.figures import EngineFigures
from anychip.plan import SchedulerStats
from anychip.request import Request, StepOutput


class StartError(ValueError):
    """The engine cannot start as configured. The text is shown to the user as it is."""


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine serves, fixed once it is ready.

    vocab_size: token ids below this are legal. context_length: positions a sequence at most.
    page_size: cache positions a page; pages: usable pages. max_running: requests at once.
    memory: bytes by use, in the order in which they are told. operators: (operator,
    implementation, kind). contract: version of the chip's contract. dtype: of the model's
    arithmetic. weights: bytes on the device of the matrices, by the format they are held in.
    quantization: what was made of linears at load, else how the model was quantized before; empty:
    neither. notes: further facts by name.
    """

    backend: str
    device: str
    model_name: str
    vocab_size: int
    context_length: int
    page_size: int
    pages: int
    max_running: int
    eos_ids: tuple[int, ...] = ()
    memory: dict[str, int] = msgspec.field(default_factory=dict)
    operators: tuple[tuple[str, str, str], ...] = ()
    contract: tuple[int, int] = (0, 0)
    notes: dict[str, str] = msgspec.field(default_factory=dict)
    dtype: str = ""
    weights: dict[str, int] = msgspec.field(default_factory=dict)
    quantization: str = ""

    @property
    def cache_tokens(self) -> int:
        """Tokens that the whole KV cache holds."""
        return self.pages * self.page_size


class Submit(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Take a request."""

    request: Request


class Abort(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """End a request; nothing more is said about it."""

    request_id: str


class Flush(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Empty the prefix cache; `Flushed` answers with the same number."""

    number: int


class ProfileWish(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A profile: the file that it becomes, and when it ends by itself.

    steps: None: only by time, bytes, or when it is told to. activities: "PYTHON" (stacks),
    "OPERATORS" (each waited for), "COPIES".
    """

    path: str
    seconds: float
    steps: int | None = None
    activities: tuple[str, ...] = ("PYTHON", "OPERATORS", "COPIES")


class StartProfile(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Begin a profile; `ProfileTold` answers with the same number."""

    number: int
    wish: ProfileWish


class StopProfile(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """End the profile; `ProfileTold` answers with the same number, then comes `ProfileEnded`."""

    number: int


class Look(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Sample the stacks of the engine's threads; `Looked` answers with the same number."""

    number: int
    seconds: float
    hertz: float


class Close(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """End the process in good order."""


Command = Submit | Abort | Flush | Look | StartProfile | StopProfile | Close
"""Everything that the server tells the engine process."""


class Commands(msgspec.Struct, frozen=True, array_like=True):
    """Everything that the server wants done before the next step, in order."""

    items: list[Command]


class Boot(msgspec.Struct, frozen=True, array_like=True):
    """First frame to the engine process: which function builds the engine, and from what.

    builder: "module:function" with the signature of engine/build.py's `build_engine`.
    config: the ServeConfig's msgpack, keys left out.
    """

    builder: str
    config: msgspec.Raw
    log_level: str = "info"


class LogLine(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A line for the server's log. level: logging's number. passing: see `Passing`.

    logger: who writes it. facts: see `log_lines.facts_of`. when: seconds since 1970; 0: now.
    """

    level: int
    text: str
    passing: bool = False
    logger: str = "anychip.engine"
    facts: dict[str, str] = msgspec.field(default_factory=dict)
    when: float = 0.0


class Ready(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The engine takes requests."""

    info: EngineInfo


class StartFailed(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The engine could not start; the text is for the user."""

    text: str


class Died(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Last words: the error that ends the engine process. fact: a chip error's layer and kind."""

    text: str
    fact: tuple[str, str] | None = None


class Refused(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A submitted request was not taken. later: the same request may be taken later."""

    request_id: str
    text: str
    later: bool


class Flushed(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Whether the cache was emptied (not while requests run or wait)."""

    number: int
    done: bool


class ProfileTold(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Whether a profile began or is about to end; error: why not."""

    number: int
    error: str = ""


class ProfileEnded(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """A profile is over, by itself or not.

    reason: "asked", "steps", "time", "bytes", or what went wrong on the way. error: why there is
    no file; the rest means nothing then.
    """

    path: str
    steps: int = 0
    nbytes: int = 0
    reason: str = ""
    error: str = ""


class Looked(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What was seen of the engine process, or why nothing was."""

    number: int
    seen: ProcessSeen | None
    error: str = ""


class StepMessage(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What one step did; with no outputs, the heartbeat of an idle engine.

    figures: what was counted, now and then and before a rest. stats: the scheduler's books, with
    the figures and where something came or ended; None: answers went on, and no more.
    """

    outputs: list[StepOutput]
    stats: SchedulerStats | None
    figures: EngineFigures | None = None


Answer = Refused | Flushed | Looked | ProfileTold | ProfileEnded | StepMessage
"""What the engine says about requests and to commands."""

EngineMessage = LogLine | Ready | StartFailed | Died | Answer
"""Everything that the engine process says."""
