"""The hub's access token, kept where huggingface_hub keeps it and nowhere else.

It is read through that library, and written to the file the library reads (HF_TOKEN_PATH). The library's own `login`
and `logout` are not used: `login` knows only the endpoint of the environment, and `logout` drops every token stored on
the machine and runs git, which on a Mac without developer tools opens an installer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, cast

from app.files import write_atomically
from app.settings import SettingsError

_WHERE = "Make a token with the right to read at huggingface.co/settings/tokens and paste it whole."
_TIMEOUT_S = 10.0


def token() -> str | None:
    """The token that requests carry: of the environment (HF_TOKEN), or else of the token file; None for one that cannot
    be read, which requests complain of."""
    from huggingface_hub import get_token  # noqa: PLC0415 (slow to import, and the window is to be seen first)

    try:
        return get_token()
    except (OSError, UnicodeDecodeError):
        return None


def token_origin() -> Literal["environment", "file"] | None:
    """Where the token comes from, so that the user knows why a saved one has no effect; None without a token."""
    current = token()
    if current is None:
        return None
    return "file" if _stored() == current else "environment"


def is_stored() -> bool:
    """Whether there is one to forget, also where that of the environment goes first."""
    return bool(_stored())


def check_token(value: str, *, endpoint: str | None = None) -> str:
    """Asks the hub whose token it is; blocks for a request, so not for the window's thread.

    Args:
        endpoint: the hub or mirror to ask; None is huggingface_hub's.

    Returns:
        The account's name.

    Raises:
        SettingsError: the token is malformed or refused, or the hub cannot be reached. The token is not in the message.
    """
    import httpx2  # noqa: PLC0415
    from huggingface_hub import constants  # noqa: PLC0415
    from huggingface_hub.utils import get_session  # noqa: PLC0415

    from engine.hub.headers import hub_headers  # noqa: PLC0415

    clean = _clean(value)
    where = endpoint or constants.ENDPOINT
    try:
        # Not HfApi.whoami, whose headers are those of `build_hf_headers`, see `hub_headers`.
        response = get_session().get(f"{where}/api/whoami-v2", headers=hub_headers(clean), timeout=_TIMEOUT_S)
        if response.status_code in (401, 403):
            raise SettingsError(f"{where} does not accept the token.", _WHERE)
        if response.is_error:
            raise SettingsError(
                f"{where} could not check the token (status {response.status_code}).", "Try again later."
            )
        return str(cast("dict[str, object]", response.json())["name"])
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise SettingsError(
            f"{where} could not be asked about the token ({type(error).__name__}).",
            "Check the connection and the endpoint in the settings.",
        ) from None


def save_token(value: str) -> None:
    """Stores the token for every program of this user that goes through huggingface_hub.

    Raises:
        SettingsError: it is malformed, or its file cannot be written.
    """
    clean = _clean(value)
    file = _token_file()
    try:
        write_atomically(file, clean, secret=True)
    except OSError as error:
        raise SettingsError(
            f"The token could not be stored in {file} ({error.strerror or error}).", "Make the folder writable."
        ) from error


def forget_token() -> None:
    """Removes the token file. A token of the environment stays. Raises SettingsError when that fails."""
    file = _token_file()
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        raise SettingsError(
            f"The token could not be removed from {file} ({error.strerror or error}).", "Delete the file by hand."
        ) from error


def _token_file() -> Path:
    from huggingface_hub import constants  # noqa: PLC0415

    return Path(constants.HF_TOKEN_PATH)


def _stored() -> str:
    try:
        return _token_file().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _clean(value: str) -> str:
    """The token without the white space that copying adds. Anything else in it would end up in an HTTP header."""
    clean = value.strip()
    if not clean or not clean.isascii() or not clean.isprintable() or " " in clean:
        raise SettingsError("This is no access token.", _WHERE)
    return clean
