"""What every request to the hub carries."""

from __future__ import annotations

import huggingface_hub
from huggingface_hub.utils import get_token_to_send

from engine import __version__
from engine.hub.errors import TokenError


def hub_headers(token: str | bool | None) -> dict[str, str]:
    """The user agent, and the token as huggingface_hub takes it; blocks while it renews an OAuth token.

    Not that library's `build_hf_headers`: to tell the hub which coding agent runs the program it first asks for a list
    of them, stores that in the user's cache, and waits where the hub cannot be reached.

    Raises:
        TokenError: the file of the token cannot be read.
    """
    headers = {"user-agent": f"inkstand/{__version__}; hf_hub/{huggingface_hub.__version__}"}
    try:
        sent = get_token_to_send(token)
    except (OSError, UnicodeDecodeError) as error:
        raise TokenError(
            f"The stored access token cannot be read: {error}.",
            f"Delete or mend {huggingface_hub.constants.HF_TOKEN_PATH}, or set HF_TOKEN or HF_HOME.",
        ) from error
    return headers if sent is None else {**headers, "authorization": f"Bearer {sent}"}
