"""Architecture -> network. A family is one short file; adding one is one line here."""

from __future__ import annotations

from anychip.model.llama import llama
from anychip.model.network import Network

NETWORKS: dict[str, Network] = {"llama": llama}
