"""The oracle of mixtures of experts, sinks and latent caches against transformers' modules."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers.models.deepseek_v2 import modeling_deepseek_v2 as deepseek_v2
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek_v3
from transformers.models.gpt_oss import modeling_gpt_oss as gpt_oss
from transformers.models.mixtral import modeling_mixtral as mixtral
from transformers.models.qwen3_moe import modeling_qwen3_moe as qwen3_moe

from anychip.ops.oracle import CacheArrays, evaluate, latent_arrays

TOKENS, HIDDEN, EXPERTS, CHOSEN, INNER = 33, 16, 16, 4, 12
CLOSE = 1e-6
SIZES = {"hidden_size": HIDDEN, "num_experts_per_tok": CHOSEN}
GROUPED = {"n_group": 4, "topk_group": 2}
V2 = {**SIZES, "n_routed_experts": EXPERTS, "num_attention_heads": 4}


def drawn(module):
    """A module whose parameters are random, the same each time."""
    torch.manual_seed(5)
    for tensor in (*module.parameters(), *module.buffers()):
        torch.nn.init.normal_(tensor, std=0.3)
    return module.eval()


def array(tensor):
    return tensor.detach().float().numpy()


def apart(expected, found):
    want = np.asarray(array(expected), np.float64)
    return np.linalg.norm(found - want) / np.linalg.norm(want)


ROUTERS = {
    "qwen3 renormalized": (
        lambda: qwen3_moe.Qwen3MoeTopKRouter(
            qwen3_moe.Qwen3MoeConfig(num_experts=EXPERTS, norm_topk_prob=True, **SIZES)
        ),
        {"scoring": "softmax", "renormalize": True},
    ),
    "qwen3": (
        lambda: qwen3_moe.Qwen3MoeTopKRouter(
            qwen3_moe.Qwen3MoeConfig(num_experts=EXPERTS, norm_topk_prob=False, **SIZES)
        ),
        {"scoring": "softmax"},
    ),
    "mixtral": (
        lambda: mixtral.MixtralTopKRouter(
            mixtral.MixtralConfig(num_local_experts=EXPERTS, **SIZES)
        ),
        {"scoring": "softmax", "renormalize": True},
    ),
    "gpt-oss": (
        lambda: gpt_oss.GptOssTopKRouter(gpt_oss.GptOssConfig(num_local_experts=EXPERTS, **SIZES)),
        {"scoring": "softmax_topk"},
    ),
    "deepseek v2 greedy": (
        lambda: deepseek_v2.DeepseekV2TopkRouter(
            deepseek_v2.DeepseekV2Config(topk_method="greedy", routed_scaling_factor=1.5, **V2)
        ),
        {"scoring": "softmax", "scale": 1.5},
    ),
    "deepseek v2 groups": (
        lambda: deepseek_v2.DeepseekV2TopkRouter(
            deepseek_v2.DeepseekV2Config(topk_method="group_limited_greedy", **GROUPED, **V2)
        ),
        {"scoring": "softmax", "groups": 4, "groups_kept": 2},
    ),
    "deepseek v3": (
        lambda: deepseek_v3.DeepseekV3TopkRouter(
            deepseek_v3.DeepseekV3Config(
                n_routed_experts=EXPERTS, routed_scaling_factor=2.5, **GROUPED, **SIZES
            )
        ),
        {
            "scoring": "sigmoid",
            "renormalize": True,
            "groups": 4,
            "groups_kept": 2,
            "group_score": "top2",
            "scale": 2.5,
        },
    ),
}


@pytest.mark.parametrize("name", ROUTERS)
def test_routers_choose_the_same_experts_with_the_same_weights(name):
    make, attrs = ROUTERS[name]
    router = drawn(make())
    logits, weights, ids = router(torch.randn(TOKENS, HIDDEN))
    bias = getattr(router, "e_score_correction_bias", None)
    inputs = {"logits": array(logits), "bias": None if bias is None else array(bias)}
    attrs = {"k": CHOSEN, "scale": getattr(router, "routed_scaling_factor", 1.0), **attrs}
    found, chosen = evaluate("route_experts", inputs, attrs).outputs
    dense = np.zeros((2, TOKENS, EXPERTS))
    np.put_along_axis(dense[0], ids.numpy(), array(weights), axis=1)
    np.put_along_axis(dense[1], chosen, found, axis=1)
    assert ((dense[0] != 0) == (dense[1] != 0)).all()
    np.testing.assert_allclose(dense[1], dense[0], rtol=2e-6)


def routed():
    torch.manual_seed(6)
    ids = torch.stack([torch.randperm(EXPERTS)[:CHOSEN] for _ in range(TOKENS)])
    return torch.randn(TOKENS, HIDDEN), ids, torch.rand(TOKENS, CHOSEN)


def mlp(x, ids, weights, given, **attrs):
    inputs = {"x": array(x), "weights": array(weights), "ids": ids.numpy().astype(np.int32)}
    attrs = {"experts_count": EXPERTS, **attrs}
    return evaluate("expert_mlp", {**inputs, **given}, attrs).outputs[0]


def test_experts_of_qwen3():
    config = qwen3_moe.Qwen3MoeConfig(num_experts=EXPERTS, moe_intermediate_size=INNER, **SIZES)
    experts, (x, ids, weights) = drawn(qwen3_moe.Qwen3MoeExperts(config)), routed()
    given = {
        "gate_up": array(experts.gate_up_proj).reshape(-1, HIDDEN),
        "down": array(experts.down_proj).reshape(-1, INNER),
    }
    found = mlp(x, ids, weights, given, activation="silu")
    assert apart(experts(x, ids, weights), found) < CLOSE


def test_experts_of_gpt_oss():
    """Its gates and ups take turns; here all gates come first."""
    config = gpt_oss.GptOssConfig(num_local_experts=EXPERTS, intermediate_size=INNER, **SIZES)
    experts, (x, ids, weights) = drawn(gpt_oss.GptOssExperts(config)), routed()
    x *= 40  # beyond both limits

    def halves(tensor):
        return array(torch.cat([tensor[:, 0::2], tensor[:, 1::2]], dim=1))

    given = {
        "gate_up": halves(experts.gate_up_proj.transpose(1, 2)).reshape(-1, HIDDEN),
        "gate_up_bias": halves(experts.gate_up_proj_bias),
        "down": array(experts.down_proj.transpose(1, 2)).reshape(-1, INNER),
        "down_bias": array(experts.down_proj_bias),
    }
    clamp = {"activation": "swiglu_clamp", "alpha": 1.702, "limit": 7.0}
    found = mlp(x, ids, weights, given, **clamp)
    assert apart(experts(x, ids, weights), found) < CLOSE
    without = mlp(x, ids, weights, given, **{**clamp, "limit": 1e9})
    assert apart(experts(x, ids, weights), without) > 0.1


def test_norms_of_heads():
    torch.manual_seed(7)
    norms = [drawn(qwen3_moe.Qwen3MoeRMSNorm(8)) for _ in range(2)]
    q, k = torch.randn(5, 4, 8), torch.randn(5, 2, 8)
    weights = {f"{n}_weight": array(m.weight) for n, m in zip("qk", norms, strict=True)}
    found = evaluate("qk_norm", {"q": array(q), "k": array(k), **weights}, {"eps": 1e-6}).outputs
    for norm, x, y in zip(norms, (q, k), found, strict=True):
        assert apart(norm(x), y) < CLOSE


LENGTH, PAGE = 11, 8


def batch():
    """One sequence over two pages, the second before the first."""
    return {
        "page_table": np.array([[2, 1]], np.int32),
        "cu_q": np.array([0, LENGTH], np.int32),
        "kv_lens": np.array([LENGTH], np.int32),
        "positions": np.arange(LENGTH, dtype=np.int32),
        "token_rows": np.zeros(LENGTH, np.int32),
    }


def paged(rows):
    """[LENGTH, G, D] in pages."""
    pages = np.zeros((3, PAGE, *rows.shape[1:]), np.float32)
    pages[2], pages[1, : LENGTH - PAGE] = rows[:PAGE], rows[PAGE:]
    return pages


def causal_mask():
    return torch.full((1, 1, LENGTH, LENGTH), -1e30).triu(1)


def test_sinks_of_gpt_oss():
    torch.manual_seed(8)
    layer = torch.nn.Module()
    layer.sinks, layer.num_key_value_groups, layer.training = torch.randn(4) + 1, 2, False
    q, k, v = (torch.randn(1, heads, LENGTH, 16) for heads in (4, 2, 2))
    y, _ = gpt_oss.eager_attention_forward(layer, q, k, v, causal_mask(), scaling=0.25)
    q, k, v = (array(x[0].transpose(0, 1)) for x in (q, k, v))
    cache = CacheArrays(paged(k), paged(v))
    inputs = {"q": q, "cache": cache, "sinks": array(layer.sinks), **batch()}
    found = evaluate("sink_attention", inputs, {"scale": 0.25}).outputs[0]
    assert apart(y[0], found) < CLOSE


RANK, NOPE, TURNED, VALUE, HEADS = 12, 10, 8, 14, 4


def latent_layer():
    config = deepseek_v3.DeepseekV3Config(
        hidden_size=HIDDEN,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        q_lora_rank=None,
        kv_lora_rank=RANK,
        qk_nope_head_dim=NOPE,
        qk_rope_head_dim=TURNED,
        v_head_dim=VALUE,
    )
    config._attn_implementation = "eager"
    return drawn(deepseek_v3.DeepseekV3Attention(config, 0))


def test_latent_attention_of_deepseek():
    """A layer that rotates nothing: what it caches and asks is then plain to see."""
    layer, x = latent_layer(), torch.randn(1, LENGTH, HIDDEN)
    still = (torch.ones(1, LENGTH, TURNED), torch.zeros(1, LENGTH, TURNED))
    y = layer(x, position_embeddings=still, attention_mask=causal_mask())[0][0]
    q = layer.q_proj(x)[0].view(LENGTH, HEADS, NOPE + TURNED)
    held = layer.kv_a_proj_with_mqa(x)[0]
    held = torch.cat([layer.kv_a_layernorm(held[:, :RANK]), held[:, RANK:]], dim=1)
    interleaved = torch.arange(TURNED).view(-1, 2).T.flatten()  # pairs are neighbours in theirs
    order = torch.cat([torch.arange(NOPE), NOPE + interleaved])
    held = torch.cat([held[:, :RANK], held[:, RANK:][:, interleaved]], dim=1)
    cache = latent_arrays(paged(array(held)[:, None]), RANK)
    up = array(layer.kv_b_proj.weight).reshape(HEADS, NOPE + VALUE, RANK)
    inputs = {"q": array(q[..., order]), "cache": cache, **batch()}
    attrs = {"scale": layer.scaling}
    expanded = evaluate("expanded_attention", {**inputs, "up": up}, {"nope_dim": NOPE, **attrs})
    weight = array(layer.o_proj.weight)
    found = expanded.outputs[0].reshape(LENGTH, -1) @ weight.T
    assert apart(y, found) < CLOSE

    asked = np.einsum("thn,hnl->thl", inputs["q"][..., :NOPE], up[:, :NOPE])
    asked = np.concatenate([asked, inputs["q"][..., NOPE:]], axis=-1)
    absorbed = evaluate("latent_attention", {**inputs, "q": asked}, {"value_dim": RANK, **attrs})
    mixed = np.einsum("thl,hvl->thv", absorbed.outputs[0], up[:, NOPE:])
    assert apart(y, mixed.reshape(LENGTH, -1) @ weight.T) < CLOSE
