"""Every operator of the contract, by name. `operators.lock` pins their fingerprints."""

from __future__ import annotations

from anychip.contract.catalogue import (
    attention,
    blocks,
    experts,
    network,
    primitives,
    recurrent,
    sampling,
)
from anychip.contract.signature import Signature

CATALOGUE: dict[str, Signature] = {
    s.name: s
    for s in (
        *primitives.SIGNATURES,
        *network.SIGNATURES,
        *experts.SIGNATURES,
        *attention.SIGNATURES,
        *recurrent.SIGNATURES,
        *blocks.SIGNATURES,
        *sampling.SIGNATURES,
    )
}
