"""What the engine says, in the window's words: its hints name commands and options where the window has buttons."""

from __future__ import annotations

import re

from engine.errors import CheckpointError, ConfigError, HeadError, TemplateError, UserError

_COMMAND = re.compile(r"`|(?<![\w-])--[a-z]|\binkstand [a-z]")
_ASIDE = re.compile(r"\s*\([^()]*`[^()]*\)")
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_CURES: tuple[tuple[type[UserError], str], ...] = (
    (HeadError, "Choose another MTP head for it under Models, or none."),
    (TemplateError, "Choose another model in the toolbar."),
    (CheckpointError, "Verify the model under Models, or download it again."),
    (ConfigError, "Verify the model under Models, or download it again."),
)
"""What to do where the engine's own hint is a command."""
_CODES = {
    "no-head": "Add the head of the original release under Models.",
    "not-found": "Correct the name, or look for it on the hub's page.",
    "selection": "Choose another part of the repository, or another repository.",
    "target": "Choose another folder, or move away what is in it.",
}
"""The same by the hub's code."""


def in_window(text: str) -> str:
    """`text` without the clauses that speak of the command line."""
    kept: list[str] = []
    for sentence in _SENTENCE.split(_ASIDE.sub("", text)):
        if not _COMMAND.search(sentence):
            kept.append(sentence)
            continue
        clauses = [clause for clause in re.split(r";\s+", sentence.rstrip(".")) if not _COMMAND.search(clause)]
        if clauses:
            kept.append("; ".join(clauses) + ".")
    return " ".join(kept).strip()


def words_of(error: UserError) -> tuple[str, str]:
    """Title and hint of an error, fit to be shown beside buttons."""
    title = in_window(error.title) or error.title.replace("`", "")
    code = getattr(error, "reason", None)
    hint = hint_of(error.hint, code if isinstance(code, str) else None)
    if error.hint and not hint:
        hint = next((cure for kind, cure in _CURES if isinstance(error, kind)), "")
    return title, hint


def hint_of(hint: str, code: str | None) -> str:
    """A hint of the hub in the window's words; its code helps where the hint is a command."""
    return in_window(hint) or (_CODES.get(code or "", "") if hint else "")


def sentence_of(error: UserError) -> str:
    """Title and hint in one."""
    return " ".join(words_of(error)).strip()
