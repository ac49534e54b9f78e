"""Who is to blame is a type: a `UserError` is shown with its cure, anything else is a bug."""

from __future__ import annotations

from engine.wording import printable


class UserError(Exception):
    """A mistake or situation that the user can mend.

    Args:
        title: one sentence that says what is wrong, with the offending value or file.
        hint: one sentence that says what to do about it.

    What a terminal would obey and what no stream can encode is spelt out in both: they quote foreign files.
    """

    def __init__(self, title: str, hint: str = "") -> None:
        self.title = printable(title)
        self.hint = printable(hint)
        super().__init__(f"{self.title} {self.hint}".strip())


class ConfigError(UserError):
    """config.json is missing, unreadable, of another family, or holds a wrong value."""


class CheckpointError(UserError):
    """Weight files are missing, truncated, of the wrong shape, or hold non-finite values."""


class HeadAloneError(CheckpointError):
    """There is an MTP head where a model was looked for."""


class HeadError(UserError):
    """An MTP head is absent, incomplete, or does not belong to the target model."""


class PromptError(UserError):
    """A prompt, message list or sampling value that cannot be used."""


class TemplateError(UserError):
    """A chat template that cannot be read, compiled or rendered."""
