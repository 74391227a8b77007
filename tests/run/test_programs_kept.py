"""What a runner keeps of the programs that it has bound: a server meets hundreds of sizes."""

from __future__ import annotations

import gc

from anychip.config import ServeConfig
from anychip.contract.operators import Call
from anychip.engine.offline import OfflineEngine
from anychip.request import SamplingParams
from tiny_models import make_hf_folder


def calls_alive() -> int:
    gc.collect()
    return sum(type(thing) is Call for thing in gc.get_objects())


def test_kernels_keep_no_tensors_of_their_calls(tmp_path):
    config = ServeConfig(model_path=str(make_hf_folder(tmp_path)), backend="cpu")
    params = SamplingParams(max_tokens=4, temperature=0.0, ignore_eos=True)
    before = calls_alive()
    with OfflineEngine(config) as offline:
        offline.generate([[5, 6, 7, 8], [9, 10, 11]], params)
        program = offline.engine.runner.last
        assert program is not None and len(program.calls) > 3
        assert {call.spec.op for call in program.calls} >= {"embedding", "greedy"}
        assert calls_alive() == before
