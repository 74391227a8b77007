"""docs/api.md tells what happens to every field of the dialects it describes."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from anychip.server.endpoints import ENDPOINTS
from anychip.server.validation import HARMLESS

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
COMMON, *SECTIONS = PAGE.split("\n## ")
DESCRIBED = [one for one in ENDPOINTS if one.body and one.path.startswith(("/v1/resp", "/v1/mess"))]


@pytest.mark.parametrize("endpoint", DESCRIBED, ids=[one.path for one in DESCRIBED])
def test_every_field_has_its_place_on_the_page(endpoint):
    (section,) = [one for one in SECTIONS if one.split("`")[1] in endpoint.path]
    fields = {field.encode_name for field in msgspec.structs.fields(endpoint.body)}
    for name in fields | set(endpoint.not_yet):
        assert f"`{name}`" in section or f"`{name}`" in COMMON, name


def test_what_is_taken_everywhere_is_told():
    assert all(f"`{name}`" in COMMON for name in HARMLESS)
