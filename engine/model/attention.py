"""Grouped-query attention without rotary positions: q/k norms, short convolutions on k and v, relative bias."""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx

from engine.cache import KVCache, LayerCache
from engine.config import TextConfig
from engine.model.blockwise import AT_ONCE_ROWS, attend_at_once, attend_in_blocks
from engine.model.cuda.attention import RowAttention, takes
from engine.model.params import Params, array, matrix, stacked
from engine.model.relative_bias import RelativeBias
from engine.model.short_conv import ShortConv


def log_scale(position: int, length: int, floor: int, alpha: float) -> mx.array | None:
    """tau(p) = 1 + alpha * ln(max((p + 1) / floor, 1)) as float32 [L, 1], or None where it is 1 throughout."""
    if position + length <= floor:
        return None
    p = mx.arange(position + 1, position + length + 1, dtype=mx.float32) / floor
    return (1.0 + alpha * mx.log(mx.maximum(p, 1.0)))[:, None]


class Projected(NamedTuple):
    """What L rows bring to an attention."""

    q: mx.array
    """[1, heads, L, D]."""
    k: mx.array
    """[1, kv_heads, L, D], as `v`."""
    v: mx.array
    r: mx.array
    """Relative features [1, heads, L, d_rel]."""
    inputs: mx.array
    """Past and new inputs of the k and v convolution."""


class Attention:
    """One attention branch; `sliding` chooses its geometry, window and bias extent."""

    def __init__(self, config: TextConfig, params: Params, name: str, sliding: bool) -> None:
        geometry = config.attention(sliding)
        self.heads, self.kv_heads, self.head_dim = geometry.heads, geometry.kv_heads, geometry.head_dim
        self.d_rel, self.eps = config.d_rel, config.rms_norm_eps
        self.log_scaling = None if sliding or not config.log_scaling_floor else config.log_scaling_floor
        self.log_alpha = config.log_scaling_alpha
        self.qkvr_proj, self.o_proj = stacked(params, f"{name}.qkvr_proj"), matrix(params, f"{name}.o_proj")
        self.q_norm, self.k_norm = array(params, f"{name}.q_norm"), array(params, f"{name}.k_norm")
        convs = [array(params, f"{name}.{part}_conv") for part in "kv"]
        self.kv_conv = ShortConv(mx.concatenate(convs))
        self.q_width, self.kv_width = self.heads * self.head_dim, self.kv_heads * self.head_dim
        self.bias = RelativeBias(array(params, f"{name}.rel_bias"), windowed=sliding)
        dtype, group = self.q_norm.dtype, self.heads // self.kv_heads
        own = takes(self.head_dim, group, dtype)
        self._few_rows = RowAttention(self.head_dim, group, self.d_rel, self.bias) if own else None

    @property
    def row_invariant(self) -> bool:
        """See `engine.model.linear.Dense.row_invariant`; keys after a row's own change nothing either."""
        return self._few_rows is not None and self.qkvr_proj.row_invariant and self.o_proj.row_invariant

    def __call__(self, x: mx.array, cache: LayerCache) -> mx.array:
        """[1, L, H] -> [1, L, H]; keys and values join the cache."""
        tau = self.tau(cache.offset, x.shape[1])
        rows = self.project(x, cache.kv_conv.state(2 * self.kv_width), tau)
        cache.kv_conv.replace(rows.inputs)
        return self.o_proj(self.attend(rows, tau, cache.kv))

    def tau(self, position: int, length: int) -> mx.array | None:
        """The log scaling of L queries at `position`, ..., see `log_scale`."""
        return None if self.log_scaling is None else log_scale(position, length, self.log_scaling, self.log_alpha)

    def project(self, x: mx.array, past: mx.array, tau: mx.array | None) -> Projected:
        """Everything in front of the attention itself.

        Args:
            x: normed rows [1, L, H].
            past: the last inputs of the k and v convolution.
            tau: float32 [L, 1], or None.
        """

        def split(y: mx.array, heads: int) -> mx.array:
            return y.reshape(1, x.shape[1], heads, -1)

        q, kv, r = mx.split(self.qkvr_proj(x), [self.q_width, self.q_width + 2 * self.kv_width], axis=-1)
        kv, inputs = self.kv_conv.apply(kv, past)
        k, v = mx.split(kv, 2, axis=-1)
        q = mx.fast.rms_norm(split(q, self.heads), self.q_norm, self.eps)
        k = mx.fast.rms_norm(split(k, self.kv_heads), self.k_norm, self.eps).swapaxes(1, 2)
        if tau is not None:
            q = (q * tau[:, None]).astype(x.dtype)
        q, v, r = (y.swapaxes(1, 2) for y in (q, split(v, self.kv_heads), split(r, self.heads)))
        return Projected(q, k, v, r, inputs)

    def attend(self, rows: Projected, tau: mx.array | None, cache: KVCache) -> mx.array:
        """The heads' outputs [1, L, heads * D]; keys and values join the cache."""
        length, position = rows.q.shape[2], cache.offset
        view = cache.append(rows.k, rows.v)
        if length <= AT_ONCE_ROWS and self._few_rows is not None:
            q, r = rows.q.swapaxes(1, 2), rows.r.swapaxes(1, 2)
            r = r if tau is None else (r * tau[:, None]).astype(r.dtype)
            return self._few_rows(q, r, cache, view.first)
        attend = attend_at_once if length <= AT_ONCE_ROWS else attend_in_blocks
        # Both q and k are RMS-normed per head, hence 1/head_dim and not its square root.
        o = attend(rows.q, rows.r, view, position=position, bias=self.bias, tau=tau, scale=1.0 / self.head_dim)
        return o.swapaxes(1, 2).reshape(1, length, -1)
