"""Learned relative position bias, laid out as the additive mask of one attention call.

bias(h, i, j) = sum_d r[i, h, d] * bank[d, i - j] for 0 <= i - j < extent. Beyond the extent a global
layer's keys stay visible with bias 0; a sliding layer's are masked, as is every key after the query.
"""

from __future__ import annotations

import mlx.core as mx


class RelativeBias:
    """
    Args:
        bank: [d_rel, extent], column = backward distance.
        windowed: mask keys at or beyond the extent instead of giving them bias 0.
    """

    def __init__(self, bank: mx.array, windowed: bool) -> None:
        self.extent = bank.shape[1]
        self.windowed = windowed
        self.bank = mx.contiguous(bank[:, ::-1])
        """Columns in the order of the keys: the last one is distance 0."""

    def __call__(self, r: mx.array, position: int, first: int, keys: int, scale: mx.array | None) -> mx.array:
        """The mask [1, heads, L, keys] of L queries at `position`, ... over keys at `first`, ...

        Args:
            r: relative features [1, heads, L, d_rel].
            scale: float32 [L, 1] factor of the bias (log scaling), or None.
        """
        length = r.shape[2]
        band = r @ self.bank
        if scale is not None:
            band = (band * scale).astype(r.dtype)
        # Row i of the mask is row i of the band, padded on both sides and shifted by one more column
        # per row. Padding to rows of keys + L - 1 columns and reading them back with one column less
        # does the shifting without an index array.
        left = length + position - first - self.extent
        if left < 0:
            band, left = band[..., -left:], 0
        right = keys + length - 1 - left - band.shape[-1]
        far = -mx.inf if self.windowed else 0.0
        band = mx.pad(band, [(0, 0), (0, 0), (0, 0), (left, 0)], constant_values=mx.array(far, band.dtype))
        band = mx.pad(band, [(0, 0), (0, 0), (0, 0), (0, right)], constant_values=mx.array(-mx.inf, band.dtype))
        if length == 1:
            return band
        flat = band.reshape(*band.shape[:2], -1)
        width = band.shape[-1] - 1
        flat = flat[..., length - 1 : length - 1 + length * width]
        return flat.reshape(*band.shape[:2], length, width)[..., :keys]
