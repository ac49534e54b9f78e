"""The user's settings as frozen values that are always valid. `app.settings_file` keeps them on disk.

The access token of the hub is none of them: it stays in huggingface_hub's own file, see `app.credentials`. What is here
may be shown, exported and sent along with a report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args
from urllib.parse import urlsplit

from engine.errors import PromptError, UserError
from engine.text.effort import EFFORT_LEVELS, parse_effort

Theme = Literal["system", "light", "dark"]
ReduceMotion = Literal["system", "on", "off"]


class SettingsError(UserError):
    """A setting outside what is accepted; names the field and the value."""


class Limits(NamedTuple):
    """Smallest and greatest accepted value."""

    low: float
    high: float


LIMITS: Mapping[str, Limits] = {
    "temperature": Limits(0.0, 5.0),
    "top_p": Limits(0.01, 1.0),
    "top_k": Limits(0, 1_000_000),
    "min_p": Limits(0.0, 1.0),
    "repetition_penalty": Limits(0.1, 5.0),
    "presence_penalty": Limits(-2.0, 2.0),
    "frequency_penalty": Limits(-2.0, 2.0),
    "max_tokens": Limits(1, 1_000_000),
    "seed": Limits(0, 2**32 - 1),
    "context_length": Limits(256, 2**24),
    "font_size": Limits(9, 32),
    "bandwidth_limit": Limits(10_000, 10**12),
    "depth": Limits(1, 64),
}
"""Ranges of the numeric settings, by the name of the field."""

MAX_WINDOW_STATE = 2**20
"""Bytes."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen. The names are those of the engine's GenerationOptions.

    The defaults are what is used with Inkling elsewhere; the checkpoints bring none of their own.
    """

    temperature: float = 1.0
    """0 always takes the likeliest token."""
    top_p: float = 0.95
    top_k: int = 0
    """0 keeps all."""
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    max_tokens: int | None = None
    """Tokens of an answer at most; None is limited by the context alone."""
    seed: int | None = None
    """None draws another one for every answer."""

    def __post_init__(self) -> None:
        for name in ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"):
            _check_number(name, getattr(self, name))
        _check_integer("top_k", self.top_k)
        _check_integer("max_tokens", self.max_tokens, optional=True)
        _check_integer("seed", self.seed, optional=True)


@dataclass(frozen=True, slots=True)
class DraftDefault:
    """How new chats use the MTP head."""

    enabled: bool = True
    depth: int | None = None
    """Drafts per round; None leaves it to the engine (Auto)."""

    def __post_init__(self) -> None:
        _check_flag("enabled", self.enabled)
        _check_integer("depth", self.depth, optional=True)


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything the settings window shows, and what the window remembers of itself.

    Raises:
        SettingsError: a value is not accepted, at construction and in `dataclasses.replace`.
    """

    sampling: Sampling = field(default_factory=Sampling)
    context_length: int | None = None
    """Tokens; None is the model's own."""
    effort: str = "high"
    """Thinking effort: the name of a level, or a number from 0 to 0.99 as text."""
    theme: Theme = "system"
    font_size: int = 13
    """Points."""
    models_folder: Path | None = None
    """Where downloads go; None is the data directory's."""
    further_folders: tuple[Path, ...] = ()
    """Searched for models, never written to."""
    endpoint: str | None = None
    """URL of the hub or a mirror; None is huggingface_hub's (HF_ENDPOINT, or the official one)."""
    use_token: bool = True
    """Whether requests carry the stored access token; False asks as anybody."""
    bandwidth_limit: int | None = None
    """Bytes per second of all downloads together."""
    reduce_motion: ReduceMotion = "system"
    draft: DraftDefault = field(default_factory=DraftDefault)
    window_state: bytes = b""
    """Geometry and layout, as the window's toolkit packs them."""
    last_model: str | None = None
    """What was loaded last: a directory or owner/name."""

    def __post_init__(self) -> None:
        _check_type("sampling", self.sampling, Sampling, "an object")
        _check_type("draft", self.draft, DraftDefault, "an object")
        _check_integer("context_length", self.context_length, optional=True)
        _check_effort(self.effort)
        _check_choice("theme", self.theme, get_args(Theme))
        _check_integer("font_size", self.font_size)
        _check_folders(self.models_folder, self.further_folders)
        _check_endpoint(self.endpoint)
        _check_flag("use_token", self.use_token)
        _check_integer("bandwidth_limit", self.bandwidth_limit, optional=True)
        _check_choice("reduce_motion", self.reduce_motion, get_args(ReduceMotion))
        _check_window_state(self.window_state)
        _check_model(self.last_model)

    def with_overrides(self, overrides: Mapping[str, Any]) -> Settings:
        """These settings with a chat's own values for sampling and effort; unknown names have no effect.

        Raises:
            SettingsError: a value is not accepted.
        """
        sampling = {name: overrides[name] for name in SAMPLING_NAMES if name in overrides}
        effort = overrides.get("effort", self.effort)
        return replace(self, sampling=replace(self.sampling, **sampling), effort=effort)


SAMPLING_NAMES: tuple[str, ...] = tuple(item.name for item in fields(Sampling))
OVERRIDES: tuple[str, ...] = ("effort", *SAMPLING_NAMES)
"""What a chat can set for itself."""


def check_overrides(overrides: Mapping[str, Any]) -> None:
    """Raises SettingsError when a chat's own settings hold a value that is not accepted."""
    Settings().with_overrides(overrides)


def _error(name: str, value: object, accepted: str) -> SettingsError:
    shown = repr(value)
    shown = shown if len(shown) <= 80 else shown[:79] + "…"
    return SettingsError(f"{name} is {shown}.", f"It must be {accepted}.")


def _check_number(name: str, value: object) -> None:
    low, high = LIMITS[name]
    accepted = f"a number from {low:g} to {high:g}"
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise _error(name, value, accepted)


def _check_integer(name: str, value: object, *, optional: bool = False) -> None:
    if optional and value is None:
        return
    low, high = LIMITS[name]
    accepted = f"a whole number from {low:,} to {high:,}"
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise _error(name, value, accepted)


def _check_flag(name: str, value: object) -> None:
    _check_type(name, value, bool, "true or false")


def _check_choice(name: str, value: object, among: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in among:
        raise _error(name, value, ", ".join(among[:-1]) + f" or {among[-1]}")


def _check_type(name: str, value: object, kind: type, accepted: str) -> None:
    if not isinstance(value, kind):
        raise _error(name, value, accepted)


def _check_effort(value: object) -> None:
    accepted = f"{', '.join(EFFORT_LEVELS)}, or a number from 0 to 0.99 as text"
    if not isinstance(value, str) or len(value) > 40:
        raise _error("effort", value, accepted)
    try:
        parse_effort(value)
    except PromptError as error:
        raise _error("effort", value, accepted) from error


def _check_folders(models_folder: object, further_folders: object) -> None:
    if models_folder is not None:
        _check_folder("models_folder", models_folder)
    if not isinstance(further_folders, tuple):
        raise _error("further_folders", further_folders, "a list of folders")
    for folder in cast("tuple[object, ...]", further_folders):
        _check_folder("further_folders", folder)


def _check_folder(name: str, value: object) -> None:
    if not isinstance(value, Path) or not value.is_absolute() or "\0" in str(value):
        raise _error(name, str(value), "the full path of a folder")


def _check_endpoint(value: object) -> None:
    if value is None:
        return
    accepted = "an address like https://huggingface.co, without user name, password or query"
    if not isinstance(value, str) or any(character.isspace() or not character.isprintable() for character in value):
        raise _error("endpoint", value, accepted)
    try:
        parts = urlsplit(value)
        _ = parts.port
    except ValueError as error:
        raise _error("endpoint", value, accepted) from error
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise _error("endpoint", value, accepted)
    if "@" in parts.netloc:
        # Not shown: it holds a secret.
        raise SettingsError("endpoint holds a user name or password.", f"It must be {accepted}.")


def _check_window_state(value: object) -> None:
    if not isinstance(value, bytes) or len(value) > MAX_WINDOW_STATE:
        raise SettingsError("window_state is not what a window saves.", "The window opens in its usual place.")


def _check_model(value: object) -> None:
    if value is not None and (not isinstance(value, str) or not value or len(value) > 4_096 or "\0" in value):
        raise _error("last_model", value, "a directory or owner/name")
