"""`quantization_config` of config.json: every key is used, known to say nothing, or refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from anychip.model.errors import CheckpointError, UnsupportedModel, unsupported
from anychip.model.fields import Fields

ORIGIN = "quantization_config"


@dataclass(frozen=True)
class Settings:
    """Settings of one scheme. told: keys that say how it was made and change no number.

    origin: where the settings stand, for messages.
    """

    values: Mapping[str, Any]
    told: frozenset[str] = frozenset()
    origin: str = ORIGIN
    _used: set[str] = field(default_factory=set)

    @property
    def fields(self) -> Fields:
        """For typed access; the key is to be given to `use` first."""
        return Fields(self.values, self.origin)

    def integer(self, key: str, default: int | None = None) -> int:
        """An integer."""
        return self._use(key).integer(key, default)

    def flag(self, key: str, default: bool = False) -> bool:
        """True or false."""
        return self._use(key).flag(key, default)

    def text(self, key: str, default: str | None = None) -> str:
        """A string."""
        return self._use(key).text(key, default)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings; empty where it is missing."""
        return self._use(key).texts(key)

    def choice(self, key: str, choices: Iterable[str], default: str | None = None) -> str:
        """A string out of these."""
        found, offered = self.text(key, default), tuple(choices)
        if found not in offered:
            raise unsupported(f"{self.origin}: {key}", found, offered)
        return found

    def raw(self, key: str) -> Any:
        """Whatever stands there; None where it is missing."""
        self._used.add(key)
        return self.values.get(key)

    def mapping(self, key: str) -> Mapping[str, Any] | None:
        """An object, or None where it is missing or null."""
        found = self.raw(key)
        if found is not None and not isinstance(found, dict):
            raise CheckpointError(f"{self.origin}: '{key}' is {found!r:.60}, not an object")
        return found

    def finish(self) -> None:
        """Refuse what nobody asked for and what would change the numbers if it were heard."""
        for key, value in self.values.items():
            idle = value is None or value is False or value in ({}, [], "")
            if key not in self._used | self.told and not idle:
                raise UnsupportedModel(
                    f"{self.origin}: '{key}' is {value!r:.60}, which is not supported; "
                    "it would be ignored"
                )

    def _use(self, key: str) -> Fields:
        self._used.add(key)
        return Fields(self.values, self.origin)
