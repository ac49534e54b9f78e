"""Byte-level BPE on top of the `tokenizers` library, with control tokens kept out of reach of text."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Final

import tokenizers
from tokenizers import decoders

from engine.errors import UserError
from engine.text.detokenizer import Detokenizer

_MARKER_SHAPE: Final = re.compile(r"<\|.+\|>")
_MAX_BYTES: Final = 1 << 28
"""That of a vocabulary of 200,000 has a tenth of it."""
_CURE: Final = "Copy tokenizer.json from the checkpoint's repository into this folder, or download the model again."


class TokenizerError(UserError):
    """tokenizer.json is missing, unreadable, or not a byte-level BPE."""


class Tokenizer:
    """Text to token ids and back.

    Control tokens are the added tokens that tokenizer.json declares special or spells `<|...|>`, and
    the ids that end a generation. `encode` never yields one of them, whatever is typed, and `decode`
    never shows one. The token for characters that the vocabulary lacks is the one exception: it is
    what `encode` yields for such a character.
    """

    def __init__(self, backend: tokenizers.Tokenizer, eos_token_ids: Iterable[int] = ()) -> None:
        self._backend = backend
        # Without this the library finds special tokens in the text itself.
        backend.encode_special_tokens = True
        added = {id_: (token.content, token.special) for id_, token in backend.get_added_tokens_decoder().items()}
        self._plain_added = {
            id_: content
            for id_, (content, special) in added.items()
            if not special and not _MARKER_SHAPE.match(content)
        }
        self.control_tokens: Final[dict[str, int]] = {
            content: id_ for id_, (content, _) in added.items() if id_ not in self._plain_added
        }
        """Name to id."""
        self.eos_token_ids: Final = tuple(eos_token_ids)
        """Ids that end a generation."""
        self.vocab_size: Final = backend.get_vocab_size(with_added_tokens=True)
        """Number of ids that stand for something; a model may have more rows than that."""
        names = sorted(self.control_tokens, key=len, reverse=True)
        self.control_pattern: Final = re.compile("|".join(map(re.escape, names)) or r"(?!)")
        """Matches the name of any control token, the longest first."""
        self._control = frozenset(self.control_tokens.values()) | frozenset(self.eos_token_ids)
        unknown: str | None = getattr(backend.model, "unk_token", None)
        self._off_limits = self._control - {self.control_tokens.get(unknown or "", -1)}
        self._bytes: dict[int, bytes] = {}

    @classmethod
    def from_directory(cls, directory: Path | str, eos_token_ids: Iterable[int] = ()) -> Tokenizer:
        """Read `directory/tokenizer.json`.

        Raises:
            TokenizerError: the file is missing, cannot be read or parsed, or holds another kind of tokenizer.
        """
        path = Path(directory) / "tokenizer.json"
        try:
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):
                raise TokenizerError(f"{path} cannot be read: it is not a file.", _CURE)
            if status.st_size > _MAX_BYTES:
                raise TokenizerError(f"{path} is {status.st_size:,} bytes long, which no tokenizer is.", _CURE)
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError as error:
            raise TokenizerError(f"{path} does not exist.", _CURE) from error
        except (OSError, UnicodeDecodeError) as error:
            raise TokenizerError(f"{path} cannot be read: {error}.", _CURE) from error
        try:
            backend = tokenizers.Tokenizer.from_str(text)
        except Exception as error:  # the library raises nothing narrower
            raise TokenizerError(f"{path} is not a valid tokenizer file: {error}.", _CURE) from error
        if not isinstance(backend.decoder, decoders.ByteLevel):
            kind = type(backend.decoder).__name__
            raise TokenizerError(
                f"{path} decodes with {kind}, but Inkling's tokenizer is a byte-level BPE.", "Use the original file."
            )
        return cls(backend, eos_token_ids)

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, in which control tokens have no meaning: a typed marker stays plain text.

        Lone surrogates, which no UTF-8 text can hold, are encoded as U+FFFD.

        Raises:
            TokenizerError: the file contradicts itself, which the library notices only now.
        """
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if _has_surrogate(text) else text
        return self._encode(text)

    def _encode(self, text: str) -> list[int]:
        try:
            ids = self._backend.encode(text, add_special_tokens=False).ids
        except Exception as error:  # the library raises nothing narrower
            raise TokenizerError(f"The checkpoint's tokenizer.json cannot encode a text: {error}.", _CURE) from error
        if self._off_limits.isdisjoint(ids):
            return ids
        # The vocabulary itself holds a marker as one piece. Spelt in two parts it cannot be found.
        cuts = [match.start() + 1 for match in self.control_pattern.finditer(text) if len(match[0]) > 1]
        if not cuts:
            return [id_ for id_ in ids if id_ not in self._off_limits]
        parts = pairwise([0, *cuts, len(text)])
        return [id_ for start, end in parts for id_ in self._encode(text[start:end])]

    def decode(self, ids: Iterable[int]) -> str:
        """Text of `ids` without control tokens; bytes that are not UTF-8 become U+FFFD."""
        stream = Detokenizer(self)
        return "".join(map(stream.push, ids)) + stream.finish()

    def control_id(self, name: str) -> int | None:
        """Id of the control token spelt `name`, None when the tokenizer has no such token."""
        return self.control_tokens.get(name)

    def is_control(self, id_: int) -> bool:
        """Whether `id_` frames text instead of being text."""
        return id_ in self._control

    def token_bytes(self, id_: int) -> bytes:
        """UTF-8 bytes that `id_` adds to a text: none for a control token or an id without an entry."""
        found = self._bytes.get(id_)
        if found is None:
            found = self._bytes[id_] = self._look_up_bytes(id_)
        return found

    def _look_up_bytes(self, id_: int) -> bytes:
        if id_ in self._control:
            return b""
        if id_ in self._plain_added:
            return self._plain_added[id_].encode()
        token = self._backend.id_to_token(id_) if id_ >= 0 else None
        if token is None:
            return b""
        try:
            return bytes(_BYTE_OF_CHAR[char] for char in token)
        except KeyError:
            return token.encode()


def _has_surrogate(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)


def _byte_alphabet() -> dict[str, int]:
    """The character that stands for each byte in a byte-level vocabulary (the table of GPT-2).

    Bytes that are printable in Latin-1 stand for themselves, the others are numbered from U+0100.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


_BYTE_OF_CHAR: Final = _byte_alphabet()
