"""From logits to tokens: penalties, temperature, top-k, top-p, min-p, in that order.

The chain is built once per generation. Drafts and verification go through the same one, so that
acceptance compares distributions of the same kind.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence

import mlx.core as mx

from engine.decode.options import GenerationOptions

_LEAST_TEMPERATURE = 1e-4


class Penalties:
    """Counts of the tokens so far and what they do to logits.

    Repetition looks at prompt and output, presence and frequency at the output alone.
    """

    def __init__(self, options: GenerationOptions, vocabulary: int, prompt: Sequence[int]) -> None:
        self.options, self.vocabulary = options, vocabulary
        self._prompt = mx.zeros((vocabulary,), mx.bool_)
        seen = sorted({token for token in prompt if token < vocabulary})
        if seen:
            self._prompt[mx.array(seen)] = True
        self._output = mx.zeros((vocabulary,), mx.float32)

    def commit(self, tokens: Sequence[int]) -> None:
        """`tokens` joined the output."""
        self._output = self._output.at[mx.array(list(tokens))].add(1.0)
        mx.eval(self._output)

    def __call__(self, logits: mx.array, drafts: mx.array | None, *, committed: bool = False) -> mx.array:
        """Logits [R, V] -> [R, V]. The last row sees all of `drafts` [D], each row before it one less.

        Args:
            committed: `drafts` [R] are the end of the output instead, and each row sees what came before its token.
        """
        counts = self._output[None]
        if drafts is not None:
            hits = (drafts[:, None] == mx.arange(self.vocabulary)[None]).astype(mx.float32)
            sums = mx.concatenate([mx.zeros((1, self.vocabulary)), mx.cumsum(hits, axis=0)])
            counts = counts + (sums[:-1] - sums[-1:] if committed else sums[-logits.shape[0] :])
        present = counts > 0
        factor = self.options.repetition_penalty
        repeated = mx.where(logits > 0, logits / factor, logits * factor)
        logits = mx.where(present | self._prompt, repeated, logits)
        return logits - self.options.frequency_penalty * counts - self.options.presence_penalty * present


class Sampler:
    """Chooses tokens for one generation.

    Args:
        prompt: ids that the repetition penalty counts as seen.

    Without a seed the system's entropy is used; with one, the same calls give the same tokens.
    """

    def __init__(self, options: GenerationOptions, vocabulary: int, prompt: Sequence[int]) -> None:
        self.options, self.greedy = options, options.greedy
        self._penalties = Penalties(options, vocabulary, prompt) if options.penalised else None
        seed = int.from_bytes(os.urandom(8), "little") if options.seed is None else options.seed
        self._random = random.Random(seed)

    def commit(self, tokens: Sequence[int]) -> None:
        """`tokens` joined the output."""
        if self._penalties is not None and tokens:
            self._penalties.commit(tokens)

    def key(self) -> mx.array:
        """A fresh random key."""
        return mx.random.key(self._random.getrandbits(63))

    def scores(self, logits: mx.array, drafts: mx.array | None = None, *, committed: bool = False) -> mx.array:
        """Penalised logits [R, V]; row R - 1 sees all of `drafts` [D], each row before it one less.

        Args:
            committed: `drafts` [R] are the end of the output instead, and each row sees what came before its token.
        """
        return logits if self._penalties is None else self._penalties(logits, drafts, committed=committed)

    def probabilities(self, scores: mx.array) -> mx.array:
        """The distribution that tokens are drawn from, [R, V]; temperature must be above 0."""
        options = self.options
        # Shifted first: a small temperature must not divide the best score to infinity. Below the least one the best
        # token is certain, and float32 would run out of range.
        temperature = max(options.temperature, _LEAST_TEMPERATURE)
        scores = (scores - mx.max(scores, axis=-1, keepdims=True)) / temperature
        if 0 < options.top_k < scores.shape[-1]:
            kth = mx.min(mx.topk(scores, options.top_k, axis=-1), axis=-1, keepdims=True)
            scores = mx.where(scores < kth, -mx.inf, scores)
        p = mx.softmax(scores, axis=-1)
        if options.top_p < 1:
            order = mx.argsort(-p, axis=-1)
            ranked = mx.take_along_axis(p, order, axis=-1)
            before = mx.cumsum(ranked, axis=-1) - ranked
            kept = (before < options.top_p) | (mx.arange(p.shape[-1]) == 0)
            ranked = mx.where(kept, ranked, 0.0)
            p = mx.put_along_axis(mx.zeros_like(p), order, ranked, axis=-1)
        if options.min_p > 0:
            p = mx.where(p < options.min_p * mx.max(p, axis=-1, keepdims=True), 0.0, p)
        return p / mx.sum(p, axis=-1, keepdims=True)

    def draw(self, p: mx.array) -> mx.array:
        """One token per row of the distributions [R, V] -> [R]."""
        return mx.random.categorical(mx.log(p), axis=-1, key=self.key()).astype(mx.int32)

    def pick(self, logits: mx.array, drafts: mx.array | None = None) -> tuple[mx.array, mx.array | None]:
        """One row of logits [1, V] -> its token [1] and, when sampling, its distribution [1, V]."""
        scores = self.scores(logits, drafts)
        if self.greedy:
            return mx.argmax(scores, axis=-1).astype(mx.int32), None
        p = self.probabilities(scores)
        return self.draw(p), p
