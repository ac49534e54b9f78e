"""Pygments tokens as spans of palette colours."""

from __future__ import annotations

from functools import lru_cache

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name  # pyright: ignore[reportUnknownVariableType]
from pygments.token import Comment, Keyword, Name, Number, Operator, String, Token, _TokenType  # pyright: ignore[reportPrivateUsage]
from pygments.util import ClassNotFound

LONGEST = 60_000
"""Code longer than this many characters is shown plain: colouring it would stall the window."""

_COLOURS: tuple[tuple[_TokenType, str | None], ...] = (
    (Comment, "syntax_comment"),
    (String, "syntax_string"),
    (Number, "syntax_number"),
    (Keyword.Type, "syntax_type"),
    (Keyword, "syntax_keyword"),
    (Operator.Word, "syntax_keyword"),
    (Name.Function, "syntax_name"),
    (Name.Class, "syntax_type"),
    (Name.Builtin, "syntax_type"),
    (Name.Decorator, "syntax_name"),
    (Name.Tag, "syntax_keyword"),
    (Name.Attribute, "syntax_name"),
    (Name.Exception, "syntax_type"),
)


@lru_cache(maxsize=64)
def _lexer(language: str) -> Lexer | None:
    if not language:
        return None
    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


@lru_cache(maxsize=512)
def _colour(kind: _TokenType) -> str | None:
    while kind is not Token:
        for family, name in _COLOURS:
            if kind is family:
                return name
        if kind.parent is None:
            break
        kind = kind.parent
    return None


def spans(code: str, language: str) -> list[tuple[str, str | None]]:
    """`code` cut into (text, token name of its colour or None), neighbours of one colour joined.

    The texts joined are `code`, whatever the lexer makes of it.
    """
    lexer = _lexer(language.strip().lower().split(" ")[0]) if len(code) <= LONGEST else None
    if lexer is None:
        return [(code, None)]
    result: list[tuple[str, str | None]] = []
    for kind, text in lexer.get_tokens(code):
        colour = _colour(kind)
        if result and result[-1][1] == colour:
            result[-1] = (result[-1][0] + text, colour)
        elif text:
            result.append((text, colour))
    if "".join(text for text, _ in result) != code:
        return [(code, None)]
    return result
