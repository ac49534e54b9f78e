"""Where things are: the user's directories and the resources that ship with the program."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from engine.errors import UserError

HOME = "INKSTAND_HOME"
"""Environment variable: one directory that replaces all of the user's directories."""


@dataclass(frozen=True, slots=True)
class UserPaths:
    """The user's directories. None of them need exist."""

    data: Path
    cache: Path
    config: Path
    logs: Path

    @property
    def models(self) -> Path:
        """Downloaded checkpoints, as owner/name."""
        return self.data / "models"


def user_paths(environ: Mapping[str, str] = os.environ) -> UserPaths:
    """The platform's usual places, or subdirectories of INKSTAND_HOME.

    Raises:
        UserError: INKSTAND_HOME is no directory and cannot become one.
    """
    home = environ.get(HOME)
    if home:
        root = _home_directory(home)
        return UserPaths(root / "data", root / "cache", root / "config", root / "logs")
    from platformdirs import PlatformDirs  # noqa: PLC0415 (not needed when the variable is set)

    dirs = PlatformDirs("inkstand", appauthor=False)
    return UserPaths(dirs.user_data_path, dirs.user_cache_path, dirs.user_config_path, dirs.user_log_path)


def _home_directory(value: str) -> Path:
    hint = f"Set {HOME} to a directory, or unset it."
    try:
        root = Path(value).expanduser().absolute()
    except RuntimeError as error:
        raise UserError(f"{HOME} is {value}, and there is no such user.", hint) from error
    existing = next(place for place in (root, *root.parents) if os.path.exists(place))  # noqa: PTH110 (raises nothing)
    if not existing.is_dir():
        raise UserError(f"{HOME} is {root}, but {existing} is not a directory.", hint)
    return root


def resource(name: str, *, roots: Iterable[Path] | None = None) -> Path:
    """A file or directory that ships with the program.

    Looked for in a frozen bundle, in an installed wheel (inside the package) and in a checkout (beside the package).

    Raises:
        UserError: it is in none of them.
    """
    searched = list(_resource_roots() if roots is None else roots)
    for root in searched:
        if (root / name).exists():
            return root / name
    raise UserError(
        f"The bundled {name} is missing; looked in {', '.join(map(str, searched))}.",
        "Install the program again, or name a checkpoint of your own with -m.",
    )


def demo_checkpoint() -> Path:
    """Directory of the checkpoint that is used when none is named. Raises UserError when it is missing."""
    return resource("demo_checkpoint")


def _resource_roots() -> Iterable[Path]:
    package = Path(__file__).resolve().parent
    bundle = getattr(sys, "_MEIPASS", None)
    if bundle:
        yield Path(bundle) / "resources"
    yield package / "resources"
    yield package.parent / "resources"


def sync(path: Path) -> None:
    """Make a file, or the names in a directory, survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
