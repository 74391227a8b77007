"""What a model family is: how its files are read, and its network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anychip.model.config import ModelConfig
from anychip.model.fields import Fields
from anychip.model.layers.decoder import decoder
from anychip.model.naming import Naming
from anychip.model.network import Network
from anychip.model.sources import WeightSource, decoder_sources

ReadConfig = Callable[[Fields], ModelConfig]
"""Raises CheckpointError, UnsupportedModel."""

Sources = Callable[[ModelConfig, Naming], tuple[WeightSource, ...]]


@dataclass(frozen=True, kw_only=True)
class Family:
    """A model family.

    name: ours. title: for people, with the versions that it covers. hf_class, hf_type: of
    config.json. gguf: `general.architecture`, "" where GGUF has none that is read. gguf_key: a
    count that is above 0 in this family's files alone, of all with that architecture; "": there is
    none. hf_config, gguf_config: sizes from either. hf_names, gguf_names: how their tensors are
    called. sources: the weights that the network needs. network: one step over operators.
    """

    name: str
    title: str
    hf_class: str
    hf_type: str
    hf_config: ReadConfig
    hf_names: Naming
    gguf: str = ""
    gguf_key: str = ""
    gguf_config: ReadConfig | None = None
    gguf_names: Naming | None = None
    sources: Sources = decoder_sources
    network: Network = decoder
