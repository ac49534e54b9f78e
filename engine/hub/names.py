"""Names from a server are data, not paths: which of them may become files, and where."""

from __future__ import annotations

import re
import stat
import unicodedata
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from huggingface_hub.utils import HFValidationError, validate_repo_id

from engine.hub.errors import UnsafeNameError

MANIFEST = ".inkstand.json"
PART_SUFFIX = ".part"
WEIGHTS_SUFFIX = ".safetensors"

_DATA_SUFFIXES = frozenset(
    {".safetensors", ".json", ".jsonl", ".jinja", ".txt", ".md", ".model", ".tiktoken", ".yaml", ".yml"}
    | {".png", ".jpg", ".jpeg", ".webp", ".gif", ".svg", ".pdf"}
)
_PLAIN_NAMES = frozenset({"LICENSE", "LICENCE", "NOTICE", "README", "COPYING", "AUTHORS", "CITATION"})
_DEVICES = frozenset({"con", "prn", "aux", "nul", "conin$", "conout$"}) | {
    f"{port}{n}" for port in ("com", "lpt") for n in "0123456789¹²³"
}
_MAX_PART = 255 - len(PART_SUFFIX)
"""Bytes of one path component that every common file system takes, with room for our suffix."""
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_URL = re.compile(r"^(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/([^/\s]+/[^/\s?#]+)(?:/tree/([^/\s?#]+))?/?$")


def parse_repo(text: str) -> tuple[str, str | None]:
    """`owner/name`, or the address of its page, as (owner/name, revision named by the address).

    Raises:
        UnsafeNameError: it is neither.
    """
    text = text.strip()
    match = _URL.match(text)
    repo, revision = (match[1], match[2]) if match else (text, None)
    hint = "Write it as owner/name, for example thinkingmachines/Inkling-Small."
    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise UnsafeNameError(f"{text!r} is not the name of a repository.", hint) from error
    if repo.count("/") != 1:
        raise UnsafeNameError(f"{text!r} has no owner.", hint)
    for part in repo.split("/"):
        if why := _flaw(part):
            raise UnsafeNameError(f"{text!r} cannot become a folder: {part!r} {why}.", hint)
    return repo, revision


def refused_kind(name: str) -> str | None:
    """Why a file is never fetched whatever its name, or None. What is fetched is data that no loader executes."""
    last = PurePosixPath(name).name
    suffix = PurePosixPath(last).suffix.lower()
    if last in _PLAIN_NAMES or suffix in _DATA_SUFFIXES:
        return None
    if last.startswith(".git"):
        return "repository bookkeeping"
    if suffix in {".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib", ".npy", ".npz", ".h5", ".msgpack"}:
        return "may hold a pickle, which runs code when it is read"
    if suffix in {".py", ".pyc", ".ipynb", ".sh", ".js", ".exe", ".dll", ".so", ".dylib", ".bat", ".cmd", ".ps1"}:
        return "code"
    return "not a kind of file that a checkpoint needs"


def safe_path(name: str) -> PurePosixPath:
    """A repository's file name as a relative path.

    Raises:
        UnsafeNameError: absolute, climbing, hidden behind control or direction characters, not creatable on every
            common file system, a device, or a name that this program uses itself.
    """
    for part in name.split("/"):
        if why := _flaw(part):
            raise UnsafeNameError(
                f"The repository holds a file named {name!r}, which is not safe to create: {part!r} {why}.",
                "Nothing of it was fetched. Leave the file out with --exclude, and tell the repository's owner.",
            )
    last = name.rsplit("/", 1)[-1].casefold()
    if last == MANIFEST or last.endswith(PART_SUFFIX):
        raise UnsafeNameError(
            f"The repository holds a file named {name!r}, a name that Inkstand keeps for itself.",
            "Leave the file out with --exclude.",
        )
    return PurePosixPath(name)


def check_collisions(names: Iterable[str]) -> None:
    """Refuses names that are one file on a case-insensitive or normalising file system.

    Raises:
        UnsafeNameError: two names collide, or one needs a folder where another needs a file.
    """
    files: dict[str, str] = {}
    folders: dict[str, str] = {}
    hint = "Leave one of them out with --exclude."
    for name in names:
        folded = _fold(name)
        if folded in files:
            raise UnsafeNameError(
                f"{files[folded]!r} and {name!r} are the same file on many file systems.",
                hint,
            )
        files[folded] = name
        parts = folded.split("/")
        for depth in range(1, len(parts)):
            folders.setdefault("/".join(parts[:depth]), name)
    for folded, name in files.items():
        if folded in folders:
            raise UnsafeNameError(f"{name!r} is a file, and {folders[folded]!r} needs a folder of that name.", hint)


def place(root: Path, name: str) -> Path:
    """Where a file goes below `root`. `root` may be a link of the user's; nothing below it may be one.

    Raises:
        UnsafeNameError: the name is unsafe, or a link or a file stands where a folder or a file must be.
    """
    path = root
    parts = safe_path(name).parts
    for depth, part in enumerate(parts):
        path = path / part
        try:
            mode = path.lstat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            continue
        wanted = stat.S_ISDIR if depth < len(parts) - 1 else stat.S_ISREG
        if not wanted(mode):
            found = "a link" if stat.S_ISLNK(mode) else "something else"
            raise UnsafeNameError(
                f"{path} is {found}, where {'a folder' if wanted is stat.S_ISDIR else 'a file'} has to be.",
                "Move it away, or choose another folder with --to.",
            )
    return path


def _fold(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _flaw(part: str) -> str | None:
    if part in {"", ".", ".."}:
        return "is no name"
    if any(unicodedata.category(c) in {"Cc", "Cs"} for c in part) or not _BIDI.isdisjoint(part):
        return "holds invisible characters"
    if bad := next((c for c in part if c in '\\:*?"<>|'), None):
        return f"holds {bad!r}"
    if part[-1] in ". " or part[0] == " ":
        return "ends or starts with a dot or blank"
    if part.partition(".")[0].rstrip(" ").casefold() in _DEVICES:
        return "is the name of a device"
    if len(part.encode()) > _MAX_PART:
        return "is too long"
    return None
