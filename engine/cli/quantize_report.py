"""What quantizing at load costs: the same text read by the checkpoint as it is and with the rest packed."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.cli.terminal import Terminal
from engine.wording import counted, size

if TYPE_CHECKING:
    from engine.loaded import Engine

Text = tuple[list[int], int]
"""Ids of prompt and answer, length of the prompt."""


@dataclass(frozen=True, slots=True)
class Quality:
    """One way of holding the weights, over the same texts."""

    bits: int | None
    """None: as they are without `--quantize-rest`."""
    nbytes: int
    """Of model and head."""
    agreement: float
    """Share of the answers' tokens that are the model's own choice after the tokens before them."""
    acceptance_length: float | None
    """Tokens per round of drafts measured against these texts."""


def planned_bytes(args: argparse.Namespace, bits: int | None) -> int:
    """Bytes of model and head as the command line has them loaded."""
    from engine.cli.loading import checkpoint_directories
    from engine.memory import footprint

    directory, head = checkpoint_directories(args)
    keep = args.keep_quantized or None
    seen = footprint(directory, head or directory, dtype=args.dtype, keep_quantized=keep, quantize_rest=bits)
    return seen.weights + seen.head


def measure(engine: Engine, bits: int | None, nbytes: int, texts: Sequence[Text], drafts: int) -> Quality:
    """Teacher-forced agreement of the model, and tokens per round of its head, on known texts."""
    import mlx.core as mx

    from engine.decode.known_text import hidden_rows, replay_rounds
    from engine.decode.options import GenerationOptions
    from engine.decode.sampler import Sampler
    from engine.decode.stateful import StatefulDrafter
    from engine.stats import StatsRecorder
    from engine.values import to_ints

    assert engine.head is not None
    sampler = Sampler(GenerationOptions(), engine.config.text.unpadded_vocab_size, ())
    recorder = StatsRecorder(prompt_tokens=0, cached_tokens=0, started=0.0)
    same = total = 0
    for ids, start in texts:
        hidden = hidden_rows(engine.backbone, ids)
        chosen = to_ints(mx.argmax(engine.backbone.logits(hidden[:, start - 1 : -1])[0], axis=-1))
        same += sum(a == b for a, b in zip(chosen, ids[start:], strict=True))
        total += len(chosen)
        drafter = StatefulDrafter(engine.head)
        replay_rounds(drafter, sampler, hidden, ids, start=start, drafts=drafts, recorder=recorder)
    return Quality(bits, nbytes, same / max(1, total), recorder.snapshot().acceptance_length)


def write(rows: Sequence[Quality], texts: Sequence[Text], drafts: int, terminal: Terminal, *, as_json: bool) -> None:
    """A table, or one line of JSON."""
    tokens = sum(len(ids) - start for ids, start in texts)
    if as_json:
        report = {
            "texts": len(texts),
            "tokens": tokens,
            "drafts": drafts,
            "rows": [
                {
                    "quantize_rest": row.bits,
                    "bytes": row.nbytes,
                    "agreement": row.agreement,
                    "acceptance_length": row.acceptance_length,
                }
                for row in rows
            ],
        }
        terminal.json(report)
        return
    shown = f"{counted(len(texts), 'answer')} of the model as it is, {counted(tokens, 'token')}"
    terminal.note(f"{shown}, {counted(drafts, 'draft')} per round")
    lines = [f"{'the rest':<10}{'in memory':>11}{'same choice':>13}{'tokens/round':>14}"]
    for row in rows:
        name = "as it is" if row.bits is None else f"{row.bits}-bit"
        length = "–" if row.acceptance_length is None else f"{row.acceptance_length:.2f}"
        lines.append(f"{name:<10}{size(row.nbytes):>11}{row.agreement:>13.1%}{length:>14}")
    terminal.line("\n".join(lines))
