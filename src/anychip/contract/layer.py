"""Checks at class definition: unknown names, other signatures and missing parts are refused.

A contract class (`class Memory(Layer, contract=True)`) marks its methods `@required` or
`@optional`. A class derived from it may define those and names that begin with an underscore.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from anychip.contract.errors import ContractError
from anychip.contract.version import CONTRACT, dotted

F = TypeVar("F", bound=Callable[..., Any])


def required(function: F) -> F:
    """Mark a method of a contract class that every chip must define."""
    function.__contract__ = "required"  # type: ignore[attr-defined]
    return function


def optional(function: F) -> F:
    """Mark a method of a contract class that a chip may define; left out, the slot is empty."""
    function.__contract__ = "optional"  # type: ignore[attr-defined]
    return function


def added(*parameters: str) -> Callable[[F], F]:
    """Mark last parameters that a later minor version added: a chip may leave them out."""

    def mark(function: F) -> F:
        function.__added__ = parameters  # type: ignore[attr-defined]
        return function

    return mark


def takes(method: Callable[..., Any], parameter: str) -> bool:
    """Whether a chip's method has a parameter that it may leave out."""
    return parameter in inspect.signature(method).parameters


class Layer:
    """Base of the contract classes."""

    def __init_subclass__(cls, *, contract: bool = False, abstract: bool = False) -> None:
        """`contract=True` declares a contract class; `abstract=True` a base that others finish."""
        super().__init_subclass__()
        cls._is_contract = contract  # type: ignore[attr-defined]
        if contract:
            return
        problems = _unknown_names(cls) + _other_signatures(cls)
        if not abstract:
            problems += _missing(cls)
        if problems:
            raise ContractError(f"{cls.__module__}.{cls.__qualname__}: " + "; ".join(problems))


def slots(cls: type) -> dict[str, str]:
    """Name -> 'required' or 'optional' for every method of the contract class of `cls`."""
    found: dict[str, str] = {}
    for base in reversed(_contract_bases(cls)):
        for name, member in vars(base).items():
            mark = getattr(_function(member), "__contract__", None)
            if mark is not None:
                found[name] = mark
    return found


def empty_slots(cls: type) -> tuple[str, ...]:
    """Optional methods that `cls` leaves out."""
    return tuple(n for n, mark in slots(cls).items() if mark == "optional" and not _defines(cls, n))


def _contract_bases(cls: type) -> list[type]:
    return [b for b in cls.__mro__ if vars(b).get("_is_contract")]


def _function(member: Any) -> Any:
    if isinstance(member, property):
        return member.fget
    return getattr(member, "__func__", member)


def _defines(cls: type, name: str) -> bool:
    return any(name in vars(b) for b in cls.__mro__ if not vars(b).get("_is_contract", True))


def _unknown_names(cls: type) -> list[str]:
    known = {name for base in _contract_bases(cls) for name in dir(base)}
    known |= {name for base in _contract_bases(cls) for name in inspect.get_annotations(base)}
    extra = [n for n in vars(cls) if not n.startswith("_") and n not in known]
    return [
        f"'{n}' is not part of contract {dotted(CONTRACT)} (begin private names with '_')"
        for n in extra
    ]


def _other_signatures(cls: type) -> list[str]:
    problems = []
    for name in slots(cls):
        base = next(b for b in _contract_bases(cls) if name in vars(b))
        if name in vars(cls):
            problems += _compare(name, vars(base)[name], vars(cls)[name])
    return problems


def _compare(name: str, wanted: Any, got: Any) -> list[str]:
    if isinstance(wanted, property) or isinstance(got, property):
        same = isinstance(wanted, property) == isinstance(got, property)
        return (
            []
            if same
            else [f"'{name}' must be a {'property' if isinstance(wanted, property) else 'method'}"]
        )
    if not callable(_function(got)):
        return [f"'{name}' must be a method"]
    if isinstance(wanted, classmethod) != isinstance(got, classmethod):
        return [
            f"'{name}' must {'' if isinstance(wanted, classmethod) else 'not '}be a classmethod"
        ]
    want, have = _parameters(wanted), _parameters(got)
    later = getattr(_function(wanted), "__added__", ())
    return (
        []
        if have in (want, want[: len(want) - len(later)])
        else [f"'{name}' takes ({', '.join(have)}), the contract says ({', '.join(want)})"]
    )


def _parameters(member: Any) -> list[str]:
    parameters = inspect.signature(_function(member)).parameters.values()
    return [f"{'*' if p.kind is p.KEYWORD_ONLY else ''}{p.name}" for p in parameters]


def _missing(cls: type) -> list[str]:
    lacking = [n for n, mark in slots(cls).items() if mark == "required" and not _defines(cls, n)]
    return [f"required '{n}' is missing" for n in lacking]
