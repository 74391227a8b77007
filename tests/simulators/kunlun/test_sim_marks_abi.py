"""What the tables of the ABI say of their own evidence, all of them alike."""

import re
from collections.abc import Iterator

import pytest
from sim_trees import TABLES
from sim_xdnn_card import table

FILES = sorted(TABLES.glob("abi_*.tsv"))
GUESS = re.compile(r"(?<!\bno )\bguess(es|ed)?\b", re.IGNORECASE)
"""In a source, `guess` is said of the declaration; of what a call means it is said `assumed`."""


def below_a_header() -> Iterator[dict[str, str]]:
    """Rows whose declaration no header shows. Of the others a source may guess instantiations."""
    return (row for file in FILES for row in table(file) if row["evidence"] != "header")


@pytest.mark.parametrize(
    ("source", "guesses"),
    [
        ("that the size is int64_t is a guess", True),
        ("Guess: a class of 4 bytes", True),
        ("x.cc; sizes are guesses", True),
        ("what is guessed: the order", True),
        ("x.cc shows all types, no guess", False),
        ("guesswork.cc; assumed: it frees the context", False),
        ("no guess of the order; that it is const is a guess", True),
    ],
)
def test_a_guess_is_told_from_its_denial(source: str, guesses: bool) -> None:
    assert bool(GUESS.search(source)) is guesses


def test_a_row_whose_source_guesses_is_a_guess() -> None:
    guessing = [row for row in below_a_header() if GUESS.search(row["source"])]
    assert len(guessing) > 30
    assert [row["name"] for row in guessing if row["evidence"] != "guess"] == []


def test_a_type_that_is_guessed_makes_a_guess_of_the_mangled_name() -> None:
    """The linker's name follows from the types."""
    for row in below_a_header():
        if row["evidence"] == "guess" and "_Z" in row["symbol"]:
            assert row["symbol_evidence"] == "guess", row["name"]
