"""Errors and reasons of the engine in the window's words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.crash import blame
from app.hints import in_window, sentence_of, words_of
from engine.errors import CheckpointError, HeadError, TemplateError, UserError
from engine.hub.errors import NoHeadError, TargetError
from engine.session import Engine, Session
from engine.session import GenerationOptions as Options

TINY = Path(__file__).parents[1] / "data" / "inkling-tiny"
COMMAND = re.compile(r"`|--[a-z]")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("It is 3.5 GB. Free some space.", "It is 3.5 GB. Free some space."),
        ("Connect the volume, then start again; or choose another with --to.", "Connect the volume, then start again."),
        ("`inkstand plan a/b` shows it; `inkstand models` lists them.", ""),
        ("a, b and 5 more (`inkstand inspect` lists all) are missing.", "a, b and 5 more are missing."),
        ("Leave out --revision, or name a branch. Then wait.", "Then wait."),
        ("A well--known dash and co-op stay.", "A well--known dash and co-op stay."),
    ],
)
def test_clauses_about_commands_are_left_out(text: str, shown: str) -> None:
    assert in_window(text) == shown


@pytest.mark.parametrize(
    ("error", "cure"),
    [
        (NoHeadError("a/b has no MTP head.", "`inkstand download x --mtp-head`."), "under Models"),
        (TargetError("/m is in the way.", "Choose another folder with --to."), "another folder"),
        (HeadError("It does not fit.", "Use --draft-kind none."), "or none"),
        (CheckpointError("It is truncated.", "Run `inkstand models verify`."), "Verify the model"),
        (UserError("No.", "Run `it`."), ""),
        (UserError("No.", "Do that."), "Do that."),
    ],
)
def test_a_cure_that_is_a_command_becomes_one_of_the_window(error: UserError, cure: str) -> None:
    title, hint = words_of(error)
    assert title == error.title
    assert cure in hint
    assert not COMMAND.search(sentence_of(error))
    assert blame(error) == (title, hint, False)


def test_a_model_without_a_chat_template_is_told_without_a_command() -> None:
    engine = Engine.load(TINY)
    engine.template = None
    (failed,) = Session(engine).generate([], Options())
    error = failed.error  # pyright: ignore[reportAttributeAccessIssue]
    assert isinstance(error, TemplateError)
    assert words_of(error)[1] == "Choose another model in the toolbar."
