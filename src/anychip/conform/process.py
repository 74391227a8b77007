"""The process that runs checks for the kit: a chip that crashes or hangs takes down this alone.

It answers questions on an inherited socket, one at a time. Standard output belongs to nobody
here: what a vendor's library prints goes to standard error.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
from collections.abc import Mapping
from importlib import import_module

import msgspec

from anychip.config import ServeConfig
from anychip.conform.chosen import fingerprint_of_subject, subject_of
from anychip.conform.kit import InProcess, Lister
from anychip.conform.messages import (
    Answer,
    AskChecks,
    AskFingerprint,
    AskProof,
    Broken,
    Checks,
    Fingerprint,
    Proved,
    Question,
    Ready,
    Refused,
    Start,
)
from anychip.conform.proof import Level
from anychip.conform.result import CannotList
from anychip.conform.subject import Subject
from anychip.engine.connection import Connection, PeerGone
from anychip.engine.parent import die_with
from anychip.flags import ConfigError

EXIT_OK, EXIT_INTERRUPTED, EXIT_NO_CHIP = 0, 130, 3


def main(fd: int, parent: int) -> int:
    """Answer questions until the other end closes the socket; the exit code.

    parent: the kit's process id; a check that hangs must not outlive a kit that was killed.
    """
    die_with(parent)
    os.set_inheritable(fd, False)
    os.dup2(2, 1)
    faulthandler.enable()  # where a crash happens, in Python's terms, on standard error
    signal.signal(signal.SIGINT, signal.default_int_handler)
    connection = Connection(socket.socket(fileno=fd))
    try:
        return _run(connection)
    except PeerGone:
        return EXIT_OK
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED  # the kit gave up waiting; what the check had started is ended
    finally:
        connection.close()


def _run(connection: Connection) -> int:
    start: Start = connection.receive_one(msgspec.msgpack.Decoder(Start))
    try:
        subject = subject_of(start.config)
    except Exception as error:  # noqa: BLE001 - importing a chip may raise anything; it is told
        refused = isinstance(error, ConfigError)
        text = str(error) if refused else f"{type(error).__name__}: {error}"
        connection.send(Refused(text) if refused else Broken(text))
        # Its reader would take the end of this process for a crash: live until it has left.
        connection.receive_one(msgspec.msgpack.Decoder(Question))
        return EXIT_NO_CHIP
    connection.send(Ready())
    try:
        _answer_all(connection, subject, start)
    finally:
        subject.close()
    return EXIT_OK


def _answer_all(connection: Connection, subject: Subject, start: Start) -> None:
    """Ends with PeerGone."""
    prover = InProcess(subject, _find(start.levels))
    decoder: msgspec.msgpack.Decoder[Question] = msgspec.msgpack.Decoder(Question)
    while True:
        question: Question = connection.receive_one(decoder)
        connection.send(_answer(question, prover, subject, start.config))


def _answer(question: Question, prover: InProcess, subject: Subject, config: ServeConfig) -> Answer:
    if isinstance(question, AskProof):
        return Proved(prover.prove(question.check))
    if isinstance(question, AskFingerprint):
        return Fingerprint(fingerprint_of_subject(subject, config.chip_option))
    return _list(question, prover)


def _list(question: AskChecks, prover: InProcess) -> Checks:
    try:
        return Checks(prover.checks(question.level))
    except CannotList as error:
        return Checks([], str(error))


def _find(name: str) -> Mapping[Level, Lister]:
    module, _, attribute = name.partition(":")
    levels: Mapping[Level, Lister] = getattr(import_module(module), attribute)
    return levels
