"""`anychip.Engine`: a server's engine and protocols in a Python program, without HTTP."""

from anychip.offline.answers import Answer, AnswerChoice, AnswerPart, TokenScore, ToolCallPart
from anychip.offline.engine import Engine
from anychip.offline.errors import CallError, CallFailed, CallRefused, EngineClosed, InsideLoop
from anychip.offline.streams import AsyncStream, Stream

__all__ = [
    "Answer",
    "AnswerChoice",
    "AnswerPart",
    "AsyncStream",
    "CallError",
    "CallFailed",
    "CallRefused",
    "Engine",
    "EngineClosed",
    "InsideLoop",
    "Stream",
    "TokenScore",
    "ToolCallPart",
]
