"""What a child runs in place of a call that ends its process."""

from __future__ import annotations

import os
import signal


def provoke_in_child(question: object) -> None:
    """Die as of a read far outside of a table."""
    os.kill(os.getpid(), signal.SIGSEGV)
