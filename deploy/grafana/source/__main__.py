"""Writes the dashboards: python deploy/grafana/source [FOLDER], by default deploy/grafana."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from board_chips import CHIPS
from board_device import DEVICE
from board_engine import ENGINE
from board_router import ROUTER
from board_schema import as_json

ALL = {"device": DEVICE, "engine": ENGINE, "chips": CHIPS, "router": ROUTER}


def write(folder: Path) -> None:
    """NAME.json for each dashboard."""
    for name, dashboard in ALL.items():
        text = json.dumps(as_json(dashboard, tuple(ALL.values())), indent=2)
        (folder / f"{name}.json").write_text(text + "\n")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1])
