"""What can go wrong between a hub and us."""

from __future__ import annotations

from anychip.model.errors import CheckpointError


class HubError(CheckpointError):
    """A model that its hub or the cache cannot give; the text tells why and what to do."""


class Unreachable(HubError):
    """The hub did not answer, or may not be asked: what the cache holds will do."""
