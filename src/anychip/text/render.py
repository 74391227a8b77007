"""Renders chat templates, alone in a process of its own: `python -m anychip.text.render`.

A template comes with a model file and is not ours, and no interpreter can bound foreign code from
inside. Here the kernel does it: an alarm ends the process when a template takes too long, a memory
limit when it grows too big, and nothing else of the server is disturbed. The parent is
render_process.py; what the two say to each other is in render_frames.py.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import IO, Any

import jinja2
import msgspec
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from anychip.text.frames import read_frame, write_frame
from anychip.text.render_frames import RenderJob, RenderReply

MEMORY_LIMIT = 1 << 30  # bytes of address space, the interpreter itself included
TEXT_LIMIT = 16 << 20  # characters of a rendered prompt


class GenerationTag(Extension):
    """`{% generation %} ... {% endgeneration %}` marks what a model learns; here it is plain."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it as an instance attribute

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The tag's body, as if the tag were not there."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> ImmutableSandboxedEnvironment:
    """The environment that chat templates are written for (transformers' settings)."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[GenerationTag, "jinja2.ext.loopcontrols"],
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON for a prompt, not for a web page: nothing is escaped for HTML."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(layout: str) -> str:
    return datetime.now().strftime(layout)


@lru_cache(maxsize=8)
def _compile(template: str) -> jinja2.Template:
    return _environment().from_string(template)


def answer(job: RenderJob) -> RenderReply:
    """Render one job; whatever the template raises becomes the reply's `error`."""
    try:
        template = _compile(job.template)
        text = template.render(job.variables) if job.variables is not None else ""
    except Exception as error:  # noqa: BLE001 - foreign code raises anything; the reason is told
        return RenderReply(error=_reason(error))
    if len(text) > TEXT_LIMIT:
        return RenderReply(
            error=f"the rendered prompt has {len(text)} characters; the limit is {TEXT_LIMIT}"
        )
    return RenderReply(text=text)


def _reason(error: Exception) -> str:
    """Why there is no text, told to who sent the chat; a template's own words as they are."""
    if isinstance(error, jinja2.TemplateSyntaxError):
        return f"the chat template is broken: line {error.lineno}: {error.message}"
    if isinstance(error, jinja2.TemplateError):
        return error.message or f"the chat template failed: {type(error).__name__}"
    if isinstance(error, MemoryError):
        return f"the chat template needs more than {MEMORY_LIMIT >> 20} MiB"
    return f"the chat template failed: {type(error).__name__}: {error}"


def _answer_frame(frame: bytes) -> bytes:
    job = msgspec.msgpack.decode(frame, type=RenderJob)
    signal.setitimer(signal.ITIMER_REAL, job.limit_s)
    reply = answer(job)
    try:
        body = msgspec.msgpack.encode(reply)
    except UnicodeEncodeError as error:
        body = msgspec.msgpack.encode(RenderReply(error=f"the chat template failed: {error}"))
    signal.setitimer(signal.ITIMER_REAL, 0)
    return body


def serve(source: IO[bytes], sink: IO[bytes], work: Callable[[bytes], bytes]) -> None:
    """Answer frames until the parent closes its end."""
    while (frame := read_frame(source)) is not None:
        write_frame(sink, work(frame))


def main() -> None:
    """Limit this process, then serve standard input."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the alarm ends the process, whatever it runs
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    try:
        serve(sys.stdin.buffer, sys.stdout.buffer, _answer_frame)
    except BrokenPipeError:
        os._exit(0)  # the parent has ended; a flush of what it did not take would fail again


if __name__ == "__main__":
    main()
