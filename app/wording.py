"""How figures are written and what their names mean; the same words in the panel, the footer and the tooltips."""

from __future__ import annotations

from app.hints import in_window
from engine.events import DraftStatus
from engine.stats import GenerationStats

DASH = "–"
"""Shown where nothing was measured."""

LETTERS = "R = verify rounds that carried a draft; A = accepted drafts (without the bonus token); D = drafts verified."
DEFINITIONS = {
    "acceptance_length": f"Acceptance length = 1 + A/R: tokens per round, bonus included.\n{LETTERS}",
    "acceptance_rate": f"Acceptance rate = A/D.\n{LETTERS}",
    "per_position": f"Position i: share of rounds that accepted at least i drafts.\n{LETTERS}",
    "plain_steps": "Steps without a draft are plain steps, never inside R.",
    "depth": (
        "Drafts per round = D/R. With the depth on Auto each round takes as many drafts as pay, from what was\n"
        "accepted and what rounds took lately. Where plain steps are faster, they run, with a few tries in between."
    ),
    "decode_tps": (
        "Decode tok/s = (N-1)/(t_last - t_first); prefill and time to first token are apart.\n"
        "MTP emits in lumps: while an answer streams this is the last 2.5 s, at the end the whole turn."
    ),
    "ttft_s": "Time to first token: from the request to the first token, prefill included.",
    "prefill_tps": "Prefill tok/s: prompt tokens that were not cached, per second of the passes over them.",
    "ms_per_round": "Milliseconds per verify round: drafting, the check by the model, and rollback.",
    "ms_per_plain_step": "Milliseconds per plain step: one token by the model alone, without a draft.",
    "break_even": "Break-even = ms per round / ms per plain step: tokens per round above it make MTP faster.",
    "memory": "Memory that the model, its caches and its buffers hold.",
    "context": "Tokens of the prompt and the answer, of those that the context holds.",
}


def number(value: float | None, digits: int = 2) -> str:
    return DASH if value is None else f"{value:.{digits}f}"


def rate(value: float | None) -> str:
    """Tokens per second with as many digits as mean something."""
    if value is None:
        return DASH
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}".replace(",", "\u2009")


def percent(value: float | None) -> str:
    return DASH if value is None else f"{100 * value:.0f} %"


def milliseconds(value: float | None) -> str:
    if value is None:
        return DASH
    return f"{value:.1f} ms" if value < 100 else f"{value:.0f} ms"


def seconds(value: float | None) -> str:
    if value is None:
        return DASH
    return f"{value:.2f} s" if value < 1 else f"{value:.1f} s" if value < 60 else f"{value / 60:.1f} min"


def count(value: int) -> str:
    return f"{value:,}".replace(",", "\u2009")


def plural(value: int, noun: str) -> str:
    return f"{count(value)} {noun}{'' if value == 1 else 's'}"


def footer(stats: GenerationStats | None) -> str:
    """One line of figures under an answer; what was not measured is left out."""
    if stats is None:
        return ""
    parts: list[str] = []
    if stats.decode_tps is not None:
        parts.append(f"{rate(stats.decode_tps)} tok/s")
    if stats.acceptance_length is not None:
        parts.append(f"{number(stats.acceptance_length)} tok/round")
    parts.append(plural(stats.completion_tokens, "token"))
    if stats.ttft_s is not None:
        parts.append(f"TTFT {seconds(stats.ttft_s)}")
    return "  ·  ".join(parts)


def truth(draft: DraftStatus | None, stats: GenerationStats | None = None) -> tuple[str, bool]:
    """What was asked for, what ran and why not, and whether the two differ."""
    if draft is None:
        return "", False
    if draft.requested == "none":
        if stats is not None and stats.rounds and stats.plain_steps:
            return "MTP switched midway: both ran, as asked", False
        return "Plain decoding, as asked", False
    reason = in_window(draft.reason or "")
    if draft.effective == "none":
        return f"MTP was asked, plain decoding ran: {reason or 'no reason was given'}", True
    ran = f"{plural((draft.block_size or 1) - 1, 'draft')} a round"
    if stats is not None and not stats.rounds and not stats.plain_steps:
        return "MTP was on, but the answer ended before its first round", False
    if draft.requested_block_size is not None:
        return f"MTP with {ran}: {count(draft.requested_block_size - 1)} were asked, the head makes no more", True
    if reason:
        return f"MTP with {ran}: {reason}", True
    plain = f"; {plural(stats.plain_steps, 'plain step')}" if stats is not None and stats.plain_steps else ""
    scored = f", scored for {count(draft.vocabulary)} frequent tokens" if draft.vocabulary is not None else ""
    mean = drafts_per_round(stats)
    if draft.auto:
        ran = "as many drafts as pay" if mean is None else f"as many drafts as pay, {mean:.1f} a round"
    return f"MTP with {ran}{scored}{'' if draft.auto else ', as asked'}{plain}", False


def drafts_per_round(stats: GenerationStats | None) -> float | None:
    return stats.drafted / stats.rounds if stats is not None and stats.rounds else None


def verdict(length: float | None, break_even: float | None, *, auto: bool = False) -> str:
    """The sentence that says whether speculation pays here, or nothing while it cannot be said.

    Args:
        auto: whether rounds give way to plain steps by themselves.
    """
    if length is None or break_even is None or break_even <= 0:
        return ""
    gain = length / break_even
    head = f"{length:.1f} tokens/round, break-even {break_even:.1f}: "
    if gain >= 1.005:
        return f"{head}MTP is {gain:.2f}x faster"
    if gain > 0.995:
        return f"{head}MTP makes no difference"
    return f"{head}MTP is slower, {gain:.2f}x of plain{', so plain steps run' if auto else ''}"
