"""Puts bench/ on the import path: the trace's replay is a part of a bench."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "bench"))
