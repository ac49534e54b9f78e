"""Text from token ids as they arrive, whole characters only."""

from __future__ import annotations

import codecs
from typing import Final, Protocol

_UTF8: Final = codecs.getincrementaldecoder("utf-8")


class TokenBytes(Protocol):
    """What a `Detokenizer` needs of a tokenizer."""

    def token_bytes(self, id_: int) -> bytes: ...


class Detokenizer:
    """Streaming counterpart of `Tokenizer.decode`; the work per token depends on that token only.

    A character of which only some bytes have arrived is held back until the rest is there.
    """

    def __init__(self, tokenizer: TokenBytes) -> None:
        self._tokenizer = tokenizer
        self._utf8 = _UTF8("replace")

    def push(self, id_: int) -> str:
        """Characters that `id_` completes, often none for a part of one.

        Only bytes that cannot become UTF-8 any more come out as U+FFFD.
        """
        return self._utf8.decode(self._tokenizer.token_bytes(id_))

    def finish(self) -> str:
        """What is still held back, as U+FFFD; the detokenizer starts afresh."""
        rest = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        return rest
