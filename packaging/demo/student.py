"""Trainable torch form of the Inkling text backbone and its MTP blocks: full sequences, no caches.

Written for the demo checkpoint and kept apart from the engine, which it serves as a reference. Parameter names follow
the published layout below `model.llm.` and `model.mtp.`, so that exporting is renaming. All experts are evaluated for
every token, which is the fastest way at this size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass
class Config:
    """Geometry, in the spelling of a published `text_config`; the defaults are the demo checkpoint's."""

    vocab_size: int = 8448
    unpadded_vocab_size: int = 8320
    hidden_size: int = 384
    num_hidden_layers: int = 12
    num_attention_heads: int = 6
    num_key_value_heads: int = 2
    head_dim: int = 64
    swa_num_attention_heads: int = 6
    swa_num_key_value_heads: int = 3
    swa_head_dim: int = 64
    sliding_window_size: int = 256
    rel_extent: int = 512
    d_rel: int = 16
    local_layer_ids: list[int] = field(default_factory=lambda: [0, 1, 2, 4, 5, 6, 8, 9, 10])
    log_scaling_n_floor: int = 256
    log_scaling_alpha: float = 0.1
    dense_mlp_idx: int = 2
    dense_intermediate_size: int = 1024
    intermediate_size: int = 320
    n_routed_experts: int = 8
    num_experts_per_tok: int = 2
    n_shared_experts: int = 2
    route_scale: float = 4.0
    sconv_kernel_size: int = 4
    rms_norm_eps: float = 1e-6
    logits_mup_width_multiplier: float = 4.0
    num_nextn_predict_layers: int = 4
    mtp_local_layer_ids: list[int] = field(default_factory=lambda: [0, 2, 3])


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x.float(), (x.shape[-1],), None, self.eps).to(x.dtype) * self.weight.to(x.dtype)


class Linear(nn.Module):
    def __init__(self, out: int, into: int, scale: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out, into) * scale / math.sqrt(into))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.to(x.dtype))


class ShortConv(nn.Module):
    """Depthwise causal convolution over time with its own residual, in float32."""

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(channels, 1, kernel))
        self.kernel = kernel

    def forward(self, x: Tensor) -> Tensor:
        inputs = x.float()
        y = inputs
        for tap in range(self.kernel):
            back = self.kernel - 1 - tap
            past = F.pad(inputs, (0, 0, back, 0))[:, : inputs.shape[1]] if back else inputs
            y = y + past * self.weight[:, 0, tap]
        return y.to(x.dtype)


def shift_band(m: Tensor) -> Tensor:
    """[..., i, distance] -> [..., i, j] with distance = i - j for j <= i; the rest is left to the mask."""
    *lead, length, _ = m.shape
    m = F.pad(m.flip(-1), (1, 0)).reshape(*lead, length + 1, length)
    return m[..., 1:, :]


class Attention(nn.Module):
    def __init__(self, config: Config, sliding: bool) -> None:
        super().__init__()
        c = self.config = config
        self.sliding = sliding
        self.heads = c.swa_num_attention_heads if sliding else c.num_attention_heads
        self.kv_heads = c.swa_num_key_value_heads if sliding else c.num_key_value_heads
        self.head_dim = c.swa_head_dim if sliding else c.head_dim
        self.extent = c.sliding_window_size if sliding else c.rel_extent
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        self.wq_du = Linear(q, c.hidden_size)
        self.wk_dv = Linear(kv, c.hidden_size)
        self.wv_dv = Linear(kv, c.hidden_size)
        self.wr_du = Linear(self.heads * c.d_rel, c.hidden_size)
        self.wo_ud = Linear(c.hidden_size, q, 0.5)
        self.q_norm, self.k_norm = RMSNorm(self.head_dim, c.rms_norm_eps), RMSNorm(self.head_dim, c.rms_norm_eps)
        gain = math.sqrt(math.sqrt(self.head_dim) * 3)
        self.q_norm.weight.data.fill_(gain)
        self.k_norm.weight.data.fill_(gain)
        self.k_sconv, self.v_sconv = ShortConv(kv, c.sconv_kernel_size), ShortConv(kv, c.sconv_kernel_size)
        self.rel_logits_proj = nn.Module()
        self.rel_logits_proj.proj = nn.Parameter(torch.randn(c.d_rel, self.extent) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q = self.q_norm(self.wq_du(x).view(batch, length, self.heads, self.head_dim)).transpose(1, 2)
        k = self.k_norm(self.k_sconv(self.wk_dv(x)).view(batch, length, self.kv_heads, self.head_dim)).transpose(1, 2)
        v = self.v_sconv(self.wv_dv(x)).view(batch, length, self.kv_heads, self.head_dim).transpose(1, 2)
        r = self.wr_du(x).view(batch, length, self.heads, self.config.d_rel).transpose(1, 2)
        by_distance = r @ self.rel_logits_proj.proj.to(r.dtype)
        if self.extent >= length:
            by_distance = by_distance[..., :length]
        else:
            by_distance = F.pad(by_distance, (0, length - self.extent))
        bias = shift_band(by_distance)
        if not self.sliding and self.config.log_scaling_n_floor:
            seen = torch.arange(1, length + 1, device=x.device).float()
            growth = torch.log((seen / self.config.log_scaling_n_floor).clamp(min=1))
            tau = 1 + self.config.log_scaling_alpha * growth.view(1, 1, length, 1)
            q, bias = (q.float() * tau).to(q.dtype), (bias.float() * tau).to(bias.dtype)
        i = torch.arange(length, device=x.device)
        distance = i[:, None] - i[None]
        hidden = distance < 0
        if self.sliding:
            hidden = hidden | (distance >= self.config.sliding_window_size)
        bias = bias.masked_fill(hidden, -1e30 if bias.dtype == torch.float32 else -3e38)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=1.0 / self.head_dim, enable_gqa=True)
        return self.wo_ud(out.transpose(1, 2).reshape(batch, length, -1))


class DenseMLP(nn.Module):
    def __init__(self, c: Config) -> None:
        super().__init__()
        self.w13_dn = Linear(2 * c.dense_intermediate_size, c.hidden_size)
        self.w2_md = Linear(c.hidden_size, c.dense_intermediate_size, 0.5)
        self.global_scale = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.w13_dn(x).unflatten(-1, (-1, 2)).unbind(-1)  # rows of gate and up alternate
        return self.w2_md(F.silu(gate) * up) * self.global_scale.to(x.dtype)


class MixtureOfExperts(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        c = self.config = config
        width, inner = c.hidden_size, c.intermediate_size
        routed, shared = c.n_routed_experts, c.n_shared_experts
        self.gate = nn.Module()
        self.gate.weight = nn.Parameter(torch.randn(routed + shared, width) / math.sqrt(width))
        self.gate.register_buffer("bias", torch.zeros(routed))
        self.gate.global_scale = nn.Parameter(torch.ones(1))
        self.experts = nn.Module()
        self.experts.w13_weight = nn.Parameter(torch.randn(routed, 2 * inner, width) / math.sqrt(width))
        self.experts.w2_weight = nn.Parameter(torch.randn(routed, width, inner) * 0.5 / math.sqrt(inner))
        self.shared_experts = nn.Module()
        self.shared_experts.shared_w13_weight = nn.Parameter(torch.randn(shared, 2 * inner, width) / math.sqrt(width))
        self.shared_experts.shared_w2_weight = nn.Parameter(torch.randn(shared, width, inner) * 0.5 / math.sqrt(inner))
        self.register_buffer("load", torch.zeros(routed), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        c = self.config
        routed, shared, inner = c.n_routed_experts, c.n_shared_experts, c.intermediate_size
        batch, length, width = x.shape
        rows = x.reshape(-1, width)
        with torch.autocast(x.device.type, enabled=False):
            logits = F.linear(rows.float(), self.gate.weight.float())
        chosen = (logits[:, :routed].sigmoid() + self.gate.bias).detach().topk(c.num_experts_per_tok, -1).indices
        scores = F.logsigmoid(torch.cat([logits[:, :routed].gather(-1, chosen), logits[:, routed:]], -1))
        weights = (scores - scores.logsumexp(-1, keepdim=True)).exp() * c.route_scale * self.gate.global_scale
        by_expert = torch.zeros(rows.shape[0], routed, device=x.device, dtype=weights.dtype)
        by_expert = by_expert.scatter(1, chosen, weights[:, : c.num_experts_per_tok])
        if self.training:
            self.load += (by_expert > 0).float().sum(0).detach()
        w13 = torch.cat([self.experts.w13_weight, self.shared_experts.shared_w13_weight]).to(x.dtype)
        w2 = torch.cat([self.experts.w2_weight, self.shared_experts.shared_w2_weight]).to(x.dtype)
        h = F.linear(rows, w13.reshape(-1, width)).view(-1, routed + shared, inner, 2)
        combine = torch.cat([by_expert, weights[:, c.num_experts_per_tok :]], 1).to(x.dtype)
        h = F.silu(h[..., 0]) * h[..., 1] * combine[..., None]
        y = h.reshape(rows.shape[0], -1) @ w2.transpose(1, 2).reshape(-1, width)
        return y.view(batch, length, width)


class DecoderLayer(nn.Module):
    def __init__(self, c: Config, sliding: bool, dense: bool) -> None:
        super().__init__()
        self.attn = Attention(c, sliding)
        self.mlp = DenseMLP(c) if dense else MixtureOfExperts(c)
        self.attn_norm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.mlp_norm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.attn_sconv = ShortConv(c.hidden_size, c.sconv_kernel_size)
        self.mlp_sconv = ShortConv(c.hidden_size, c.sconv_kernel_size)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn_sconv(self.attn(self.attn_norm(x)))
        return x + self.mlp_sconv(self.mlp(self.mlp_norm(x)))


class MTPBlock(nn.Module):
    def __init__(self, c: Config, sliding: bool) -> None:
        super().__init__()
        self.embed_norm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.hidden_norm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.input_proj = Linear(c.hidden_size, 2 * c.hidden_size)
        self.transformer_block = DecoderLayer(c, sliding, dense=True)

    def forward(self, embedded: Tensor, hidden: Tensor) -> Tensor:
        both = torch.cat([self.hidden_norm(hidden), self.embed_norm(embedded)], -1)
        return self.transformer_block(self.input_proj(both))


class Student(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        c = self.config = config
        self.embed = Linear(c.vocab_size, c.hidden_size)
        self.embed_norm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.layers = nn.ModuleList(
            DecoderLayer(c, i in c.local_layer_ids, i < c.dense_mlp_idx) for i in range(c.num_hidden_layers)
        )
        self.norm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.unembed = Linear(c.vocab_size, c.hidden_size)
        self.mtp = nn.Module()
        self.mtp.layers = nn.ModuleList(
            MTPBlock(c, j in c.mtp_local_layer_ids) for j in range(c.num_nextn_predict_layers)
        )

    def logits(self, hidden: Tensor) -> Tensor:
        """Readout of a trunk or draft hidden [..., H] through the final norm -> [..., unpadded vocabulary]."""
        scaled = self.norm(hidden) / self.config.logits_mup_width_multiplier
        return self.unembed(scaled)[..., : self.config.unpadded_vocab_size]

    def forward(self, ids: Tensor, dtype: torch.dtype = torch.float32) -> tuple[Tensor, list[Tensor]]:
        """ids [B, L + depths] -> trunk hidden [B, L, H], and the hidden [B, L, H] of each draft depth.

        Depth j at row p has read tokens up to p + 1 + j and guesses token p + 2 + j.
        """
        depths = len(self.mtp.layers)
        length = ids.shape[1] - depths
        embedded = self.embed_norm(F.embedding(ids, self.embed.weight).to(dtype))
        hidden = embedded[:, :length]
        for layer in self.layers:
            hidden = layer(hidden)
        drafts: list[Tensor] = []
        x = self.norm(hidden)  # depth 0 reads the trunk hidden after the final norm
        for j, block in enumerate(self.mtp.layers):
            x = block(embedded[:, 1 + j : 1 + j + length], x)
            drafts.append(x)
        return hidden, drafts


def checkpoint_tensors(student: Student) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The tensors of a published checkpoint in two groups: backbone and MTP head."""
    main: dict[str, Tensor] = {}
    head: dict[str, Tensor] = {}
    biases = [(name, value) for name, value in student.named_buffers() if name.endswith("gate.bias")]
    for name, value in [*student.named_parameters(), *biases]:
        plain = value.detach().float().cpu().contiguous()
        if name.startswith("mtp."):
            head[f"model.{name}"] = plain
        else:
            main[f"model.llm.{name}"] = plain
    return main, head
