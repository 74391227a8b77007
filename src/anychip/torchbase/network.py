"""Embedding, norms, rotation, linears, activations: float32 inside, rounded when stored."""

from __future__ import annotations

import torch
from torch.nn import functional

from anychip.torchbase.kernel import Attrs, Inputs, Kernel, Outputs

PANEL = 8192
"""Rows of a narrower weight that are made float32 at a time, for logits."""


def embedding(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Rows of the table, times scale."""
    rows = torch.index_select(inputs["table"], 0, inputs["tokens"].device)
    outputs["y"].copy_(rows if attrs["scale"] == 1.0 else rows.float() * attrs["scale"])


def _normed(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    mean = x.square().mean(dim=-1, keepdim=True)
    return x * torch.rsqrt(mean + eps) * weight


def rms_norm(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Divide each row by its root mean square."""
    outputs["y"].copy_(_normed(inputs["x"].float(), inputs["weight"], attrs["eps"]))


def add_rms_norm(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """The norm reads the sum as it was stored."""
    outputs["sum"].copy_(inputs["x"].float() + inputs["residual"].float())
    outputs["y"].copy_(_normed(outputs["sum"].float(), inputs["weight"], attrs["eps"]))


def qk_norm(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Divide each head by its root mean square."""
    for name in ("q", "k"):
        normal = _normed(inputs[name].float(), inputs[f"{name}_weight"], attrs["eps"])
        outputs[f"{name}_out"].copy_(normal)


def rotary_embedding(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Turn the pairs of each head by the angle of the token's position."""
    half = attrs["rotary_dim"] // 2
    rows = torch.index_select(inputs["cos_sin"], 0, inputs["positions"].device)[:, None]
    cosine, sine = rows[..., :half], rows[..., half : 2 * half]
    one, two = slice(0, half), slice(half, 2 * half)
    if not attrs["neox"]:
        one, two = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    for source, target in (("q", "q_out"), ("k", "k_out")):
        x, y = inputs[source].float(), outputs[target]
        y[..., one].copy_(x[..., one] * cosine - x[..., two] * sine)
        y[..., two].copy_(x[..., two] * cosine + x[..., one] * sine)
        y[..., 2 * half :].copy_(x[..., 2 * half :])


def linear(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """x @ weight.T + bias; torch accumulates narrow products in float32 where both agree."""
    x, weight, bias = inputs["x"], inputs["weight"], inputs.get("bias")
    if x.dtype != weight.dtype:
        x, weight = x.float(), weight.float()
    y = functional.linear(x, weight)
    outputs["y"].copy_(y if bias is None else y.float() + bias)


def lm_head(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Logits in float32."""
    x, weight, logits = inputs["x"].float(), inputs["weight"], outputs["logits"]
    for first in range(0, weight.shape[0], PANEL):
        panel = weight[first : first + PANEL].float()
        logits[:, first : first + PANEL].copy_(functional.linear(x, panel))
    if attrs["scale"] != 1.0:
        logits.mul_(attrs["scale"])
    if attrs["softcap"] > 0:
        logits.div_(attrs["softcap"]).tanh_().mul_(attrs["softcap"])


def silu_and_mul(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """silu of the first half times the second."""
    gate, up = inputs["x"].float().chunk(2, dim=-1)
    outputs["y"].copy_(functional.silu(gate) * up)


def gelu_tanh_and_mul(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """gelu of the first half times the second."""
    gate, up = inputs["x"].float().chunk(2, dim=-1)
    outputs["y"].copy_(functional.gelu(gate, approximate="tanh") * up)


def clamped(x: torch.Tensor, attrs: Attrs) -> torch.Tensor:
    """GPT-OSS's gate of [N, 2 * I] in float32."""
    gate, up = x.float().chunk(2, dim=-1)
    gate, up = gate.clamp(max=attrs["limit"]), up.clamp(-attrs["limit"], attrs["limit"])
    return gate * torch.sigmoid(gate * attrs["alpha"]) * (up + 1)


def swiglu_clamp_and_mul(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """A gate and an up that are held within bounds."""
    outputs["y"].copy_(clamped(inputs["x"], attrs))


def softcap(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """cap * tanh(x / cap)."""
    outputs["y"].copy_(torch.tanh(inputs["x"].float() / attrs["cap"]) * attrs["cap"])


KERNELS: dict[str, Kernel] = {
    "embedding": embedding,
    "rms_norm": rms_norm,
    "add_rms_norm": add_rms_norm,
    "qk_norm": qk_norm,
    "rotary_embedding": rotary_embedding,
    "linear": linear,
    "lm_head": lm_head,
    "silu_and_mul": silu_and_mul,
    "gelu_tanh_and_mul": gelu_tanh_and_mul,
    "swiglu_clamp_and_mul": swiglu_clamp_and_mul,
    "softcap": softcap,
}
