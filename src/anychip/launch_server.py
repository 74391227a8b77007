"""`python -m anychip.launch_server ...`: the line that SGLang users type; the same as `serve`."""

from __future__ import annotations

import sys

from anychip.__main__ import main
from anychip.signals import take_signals

if __name__ == "__main__":
    take_signals()
    sys.exit(main(["serve", *sys.argv[1:]]))
