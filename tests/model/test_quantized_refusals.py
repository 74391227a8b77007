"""What is wrong with a quantized folder is told with the name of its tensor or its setting."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import quantized_folders as schemes
import tiny_models as tiny
from anychip.model.checkpoint import open_checkpoint, split_halves
from anychip.model.errors import CheckpointError, UnsupportedModel
from anychip.model.formats import dequantize
from anychip.model.quantize import quantize
from anychip.model.rows import rows_of
from quantized_folders import edit_config, edit_tensors, write_pair

QUERY = "model.layers.0.self_attn.q_proj"


def quantized(folder: Path, name: str) -> Path:
    return write_pair(folder, schemes.SCHEMES[name])[0]


def settings(folder: Path, **changes: object) -> None:
    edit_config(folder, lambda config: config["quantization_config"].update(changes))


@pytest.mark.parametrize(
    ("scheme", "ending", "change", "message"),
    [
        ("gptq4", "qzeros", None, "is missing"),
        ("gptq4", "scales", lambda t: t[:1], r"has shape \(1, 64\), its weight needs \(2, 64\)"),
        ("gptq4", "scales", lambda t: t.to(torch.int32), "has dtype I32, float16 or bfloat16"),
        ("gptq4", "qweight", lambda t: t[:4], r"has shape \(64, 32\), the model's .* \(64, 64\)"),
        ("gptq4_act_order", "g_idx", None, "is missing"),
        ("gptq4_act_order", "g_idx", lambda t: t + 7, "names group 8 of 2"),
        ("gptq4_act_order", "g_idx", lambda t: t[:3], r"has shape \(3,\)"),
        ("awq", "qzeros", lambda t: t[:, :2], r"has shape \(2, 2\), its weight needs \(2, 8\)"),
        ("awq", "qweight", lambda t: t.reshape(-1), "a matrix is needed"),
        ("packed4", "weight_shape", None, "is missing"),
        ("packed4", "weight_packed", lambda t: t[:, :3], r"needs \(64, 8\)"),
        ("packed4_asymmetric", "weight_zero_point", None, "is missing"),
        ("int8", "weight_scale", None, "is missing"),
        ("int8", "weight_scale", lambda t: t[:9], r"needs \(64, 1\) or \(64,\)"),
        ("int8_static", "input_scale", lambda t: t * 0, "is 0.0, a number above 0 is needed"),
        ("fp8_block", "weight_scale_inv", None, "is missing"),
        ("fp8_block", "weight_scale_inv", lambda t: t[:1], r"its weight needs \(2, 2\)"),
    ],
)
def test_a_tensor_that_does_not_fit_is_named(scheme, ending, change, message, tmp_path):
    folder, name = quantized(tmp_path, scheme), f"{QUERY}.{ending}"

    def edit(tensors: schemes.Tensors) -> None:
        found = tensors.pop(name)
        if change is not None:
            tensors[name] = change(found).contiguous()

    edit_tensors(folder, edit)
    if ending == "qweight" and scheme == "gptq4":
        edit_tensors(folder, lambda t: t.update(shorter(t, QUERY)))
        name = f"{QUERY}.weight"
    with pytest.raises(CheckpointError, match=message) as found:
        open_checkpoint(folder)
    assert f"'{name}'" in str(found.value)


def shorter(tensors: schemes.Tensors, module: str) -> schemes.Tensors:
    """The other tensors of a linear of half the columns: sound in itself, not in the model."""
    cut = {ending: tensors[f"{module}.{ending}"][:1] for ending in ("qzeros", "scales")}
    cut["g_idx"] = tensors[f"{module}.g_idx"][:32]
    return {f"{module}.{ending}": part.contiguous() for ending, part in cut.items()}


def zeros_beside(folder: Path, zeros: torch.Tensor) -> Path:
    edit_tensors(folder, lambda t: t.update({f"{QUERY}.weight_zero_point": zeros}))
    return folder


def test_zero_points_that_the_settings_do_not_know_are_refused(tmp_path):
    """Codes of 4 bits: 8 is 0."""
    packed = torch.full((8, 2), -0x77777778, dtype=torch.int32)
    open_checkpoint(zeros_beside(quantized(tmp_path / "a", "packed4"), packed))
    open_checkpoint(zeros_beside(quantized(tmp_path / "b", "int8"), torch.zeros(64, 1).char()))
    for scheme, zeros in (("packed4", packed + 1), ("int8", torch.ones(64, 1).char())):
        folder = zeros_beside(quantized(tmp_path / scheme, scheme), zeros)
        with pytest.raises(CheckpointError, match=r"weight_zero_point': is not 0, but .*symmetric"):
            open_checkpoint(folder)


def test_a_truncated_file_names_a_tensor(tmp_path):
    folder = quantized(tmp_path, "gptq4")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-2000])
    with pytest.raises(CheckpointError, match=r"tensor 'model\..*cut off or damaged"):
        open_checkpoint(folder)


def test_both_plain_and_quantized_is_refused(tmp_path):
    folder = quantized(tmp_path, "gptq4")
    edit_tensors(folder, lambda t: t.update({f"{QUERY}.weight": torch.zeros(64, 64)}))
    with pytest.raises(CheckpointError, match=f"'{QUERY}.weight': .*both plain and quantized"):
        open_checkpoint(folder)


def test_quantized_in_words_alone_is_refused(tmp_path):
    folder = tiny.make_hf_folder(tmp_path)
    edit_config(folder, lambda c: c.update(quantization_config=schemes.SCHEMES["awq"].config))
    with pytest.raises(CheckpointError, match="has no such tensor"):
        open_checkpoint(folder)


@pytest.mark.parametrize(
    ("scheme", "changes", "message"),
    [
        ("gptq4", {"dynamic": {"-:.*q_proj": {}}}, "'dynamic' is .* would be ignored"),
        ("gptq4", {"quant_method": ["gptq"]}, r"quantization '\['gptq'\]' is not supported"),
        ("gptq4", {"bits": 3}, "bits '3' is not supported; supported: 4, 8"),
        ("gptq4", {"bits": None}, "quantization_config has no 'bits'"),
        ("gptq4", {"checkpoint_format": "marlin"}, "'marlin' is not supported"),
        ("gptq4", {"group_size": 0}, "group_size '0'"),
        ("gptq4", {"rotation": "hadamard"}, "'rotation'"),
        ("awq", {"version": "gemv"}, "version 'gemv' is not supported; supported: gemm"),
        ("awq", {"backend": "llm-awq"}, "'llm-awq'"),
        ("awq", {"zero_point": False}, "'zero_point' is false"),
        ("packed4", {"format": "marlin-24"}, "'marlin-24'"),
        ("packed4", {"kv_cache_scheme": {"num_bits": 8}}, "'kv_cache_scheme'"),
        ("packed4", {"sparsity_config": {"format": "sparse-24-bitmask"}}, "sparse-24-bitmask"),
        ("packed4", {"transform_config": {"config_groups": {}}}, "'transform_config'"),
        ("packed4", {"ignore": ["re:.*q_proj"]}, f"'{QUERY}.weight_packed': .*under 'ignore'"),
        ("packed4", {"config_groups": {}}, "no group of quantization_config has it as a target"),
        ("packed4", {"config_groups": {"g": ["Linear"]}}, "not an object"),
        ("fp8_block", {"weight_block_size": [128]}, "'weight_block_size' is .* not two sizes"),
        ("fp8_block", {"fmt": "e5m2"}, "'e5m2'"),
        ("fp8_block", {"quant_method": "bitsandbytes"}, "bitsandbytes is not supported; use the"),
        ("fp8_block", {"quant_method": "modelopt"}, "'modelopt'.*gptq, awq, compressed-tensors"),
    ],
)
def test_settings_that_are_not_served_are_refused_by_their_key(scheme, changes, message, tmp_path):
    folder = quantized(tmp_path, scheme)
    settings(folder, **changes)
    with pytest.raises(CheckpointError, match=message) as found:
        open_checkpoint(folder)
    assert str(folder) in str(found.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": None}, "only activations are quantized"),
        ({"weights": {"num_bits": 6}}, "num_bits '6'"),
        ({"weights": {"num_bits": 4, "strategy": "tensor_group"}}, "strategy 'tensor_group'"),
        ({"weights": {"num_bits": 4, "group_size": 32, "rounding": "up"}}, "'rounding'"),
        ({"output_activations": {"num_bits": 8}}, "'output_activations'"),
        ({"targets": ["re:("]}, "the pattern 're:.': a group without its"),
        ({"targets": ["re:(?!lm_head)"]}, "look-around, .* not supported"),
    ],
)
def test_groups_that_are_not_served_are_refused(changes, message, tmp_path):
    folder = quantized(tmp_path, "packed4")
    group = {**schemes.SCHEMES["packed4"].config["config_groups"]["group_0"], **changes}
    settings(folder, config_groups={"group_0": group})
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(folder)


def test_eight_bit_floats_without_settings_are_refused(tmp_path):
    folder = quantized(tmp_path, "fp8_tensor")
    edit_config(folder, lambda config: config.pop("quantization_config"))
    with pytest.raises(UnsupportedModel, match="format F8_E4M3 is not supported"):
        open_checkpoint(folder)


def test_settings_in_a_file_of_their_own_are_found(tmp_path):
    folder = quantized(tmp_path, "gptq4")
    formats = described(folder)
    edit_config(folder, lambda config: config.pop("quantization_config"))
    own = dict(schemes.SCHEMES["gptq4"].config)
    del own["quant_method"]
    (folder / "quantize_config.json").write_text(json.dumps(own))
    assert described(folder) == formats
    assert "u4g32" in formats


def described(folder: Path) -> set[str]:
    found = open_checkpoint(folder)
    return {found.describe(p)[0] for s in found.sources if s.uses is not None for p in s.parts}


def test_parts_in_different_orders_are_converted_and_the_others_are_not(tmp_path):
    folder = quantized(tmp_path, "gptq4_own_orders")
    found = open_checkpoint(folder)
    formats = {s.name: {found.describe(p)[0] for p in s.parts} for s in found.sources}
    assert formats["layers.0.qkv"] == {"u4g32o unlike its neighbours"}
    assert formats["layers.0.down"] == {"u4g32o"}
    (source,) = (s for s in found.sources if s.name == "layers.0.qkv")
    assert {weight.format for weight in found.read(source)} == {"float32"}


def test_rows_of_an_ordered_weight_keep_its_order(tmp_path):
    """As a family with query, key and value in one tensor takes them apart."""
    found = open_checkpoint(quantized(tmp_path, "gptq4_act_order"))
    (source,) = (s for s in found.sources if s.name == "layers.0.down")
    (weight,) = found.read(source)
    assert weight.format == "u4g32o"
    cut = rows_of(weight, 5, 7)
    assert (cut.format, cut.shape) == ("u4g32o", (7, weight.shape[1]))
    np.testing.assert_array_equal(dequantize(cut), dequantize(weight)[5:12])


def test_rows_of_an_ordered_weight_change_places_behind_its_order():
    values = np.random.default_rng(2).standard_normal((8, 64), np.float32)
    weight = quantize(values, "u4g32o")
    halves = split_halves(weight, 4)
    wanted = dequantize(weight)[[0, 2, 1, 3, 4, 6, 5, 7]]
    np.testing.assert_array_equal(dequantize(halves), wanted)


@pytest.mark.parametrize(
    ("scheme", "changes"),
    [
        ("gptq4_channel", {"group_size": 10**30}),
        ("fp8_wide_block", {"weight_block_size": [10**15, 10**15]}),
    ],
)
def test_groups_and_blocks_larger_than_the_weight_are_one_of_all_of_it(scheme, changes, tmp_path):
    """They cost what the weight has, not what the settings say."""
    made = {"fp8_wide_block": schemes.float8(512)}.get(scheme) or schemes.SCHEMES[scheme]
    folder = write_pair(tmp_path, made)[0]

    def read() -> list[bytes]:
        checkpoint = open_checkpoint(folder)
        found = [bytes(w.data) for source in checkpoint.sources for w in checkpoint.read(source)]
        checkpoint.close()
        return found

    before = read()
    settings(folder, **changes)
    assert read() == before
