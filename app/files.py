"""Writing a file so that a crash or a full disk leaves either the old or the new contents, never half of one."""

from __future__ import annotations

import contextlib
import glob
import os
import tempfile
from pathlib import Path

_STALE_S = 60.0


def write_atomically(path: Path, text: str, *, secret: bool = False) -> None:
    """Replaces the file by `text` as UTF-8, with line ends as they are.

    A link is followed, so that a file kept elsewhere (a synchronised folder) stays there. Its permissions are kept; a
    new file gets the usual ones.

    Args:
        secret: only the owner may read the file, whatever its permissions were.

    Raises:
        OSError: nothing was changed.
    """
    target = path.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o600 if secret else _mode(target))
        _remove_stale(temporary, f".{target.name}.")
        temporary.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _remove_stale(current: Path, prefix: str) -> None:
    """Removes what writers left that were killed; a live one is done within `_STALE_S`."""
    limit = current.stat().st_mtime - _STALE_S
    for other in current.parent.glob(f"{glob.escape(prefix)}*.tmp"):
        with contextlib.suppress(OSError):
            if other.stat().st_mtime < limit:
                other.unlink()


def _mode(target: Path) -> int:
    try:
        return target.stat().st_mode & 0o777
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask
