"""Puts bench/ on the import path: it is a folder of programs, not a package."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "bench"))
