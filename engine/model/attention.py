"""Grouped-query attention without rotary positions: q/k norms, short convolutions on k and v, relative bias."""

from __future__ import annotations

import mlx.core as mx

from engine.cache import LayerCache
from engine.config import TextConfig
from engine.model.blockwise import FEW_ROWS, attend_at_once, attend_in_blocks
from engine.model.params import Params, array, matrix, stacked
from engine.model.relative_bias import RelativeBias
from engine.model.short_conv import ShortConv


def log_scale(position: int, length: int, floor: int, alpha: float) -> mx.array | None:
    """tau(p) = 1 + alpha * ln(max((p + 1) / floor, 1)) as float32 [L, 1], or None where it is 1 throughout."""
    if position + length <= floor:
        return None
    p = mx.arange(position + 1, position + length + 1, dtype=mx.float32) / floor
    return (1.0 + alpha * mx.log(mx.maximum(p, 1.0)))[:, None]


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

    def __call__(self, x: mx.array, cache: LayerCache) -> mx.array:
        """[1, L, H] -> [1, L, H]; keys and values join the cache."""
        length, position = x.shape[1], cache.offset

        def split(y: mx.array, heads: int) -> mx.array:
            return y.reshape(1, length, heads, -1)

        q, kv, r = mx.split(self.qkvr_proj(x), [self.q_width, self.q_width + 2 * self.kv_width], axis=-1)
        k, v = mx.split(self.kv_conv(kv, cache.kv_conv), 2, axis=-1)
        q = mx.fast.rms_norm(split(q, self.heads), self.q_norm, self.eps).swapaxes(1, 2)
        k = mx.fast.rms_norm(split(k, self.kv_heads), self.k_norm, self.eps).swapaxes(1, 2)
        v = split(v, self.kv_heads).swapaxes(1, 2)
        r = split(r, self.heads).swapaxes(1, 2)

        scale = None
        if self.log_scaling is not None:
            scale = log_scale(position, length, self.log_scaling, self.log_alpha)
        if scale is not None:
            q = (q * scale).astype(x.dtype)
        view = cache.kv.append(k, v)
        attend = attend_at_once if length <= FEW_ROWS else attend_in_blocks
        # Both q and k are RMS-normed per head, hence 1/head_dim and not its square root.
        o = attend(q, r, view, position=position, bias=self.bias, tau=scale, scale=1.0 / self.head_dim)
        return self.o_proj(o.swapaxes(1, 2).reshape(1, length, -1))
