"""Any text is rendered, in any pieces, with nothing lost, nothing loaded and only harmless links."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from PySide6.QtGui import QTextDocument

from app.theme import Theme
from app.views.chat.look import Look
from app.views.chat.markdown import safe_link
from app.views.chat.markdown_document import MarkdownDocument

MARKUP = """
# ## > - * + 1. 1) 0. 99999999999. --- === ``` ~~~ ` `` * ** _ __ ~~ | |---| [a](b) [a]( ![i](file:///etc/passwd)
[x](javascript:alert(1)) <script>alert(1)</script> <img/src=http://a/b> <!-- --> &lt; &#x1b; \\ \\* https://example.com
[r]: <b> [r] http://[ é \U0001f30a \u202e \u2028 \0 \x1b[2J \ufffc \ufdd0 \ufdd1 \u200d \U000e0001 a word python
"""
PIECES = st.sampled_from([*MARKUP.split(), "\n", "\n\n", "    ", "\t", " ", "\r\n", "\r"])
TEXTS = st.lists(PIECES | st.text(max_size=3), max_size=20).map("".join)


class Watched(QTextDocument):
    """A document that remembers what it was asked to load."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def loadResource(self, _kind: int, name: object) -> None:
        self.asked.append(str(name))


def links(document: QTextDocument) -> list[str]:
    found: list[str] = []
    block = document.begin()
    while block.isValid():
        found += [piece.format.anchorHref() for piece in block.textFormats() if piece.format.anchorHref()]
        block = block.next()
    return found


@settings(max_examples=100)
@given(TEXTS, st.lists(st.integers(0, 60), max_size=5))
def test_any_text_in_any_pieces_renders_to_the_same(qapp: object, text: str, cuts: list[int]) -> None:
    look, whole, pieces = Look.of(Theme("light")), Watched(), Watched()
    at_once, streamed = MarkdownDocument(whole, look), MarkdownDocument(pieces, look)
    at_once.append(text)
    at_once.flush(final=True)
    start = 0
    for cut in sorted(cuts):
        streamed.append(text[start:cut])
        streamed.flush()
        start = max(start, cut)
    streamed.append(text[start:])
    streamed.flush(final=True)
    assert streamed.source == at_once.source
    assert pieces.toPlainText() == whole.toPlainText()
    assert whole.asked == pieces.asked == []
    assert all(safe_link(link) for link in links(whole))


def test_a_line_end_between_two_pieces_is_one(qapp: object) -> None:
    document = MarkdownDocument(QTextDocument(), Look.of(Theme("light")))
    for piece in ("a\r", "\nb\r", "", "\n", "\nc\r", "d"):
        document.append(piece)
    assert document.source == "a\nb\n\nc\nd"


def test_an_address_that_is_none_is_no_link(qapp: object) -> None:
    document = MarkdownDocument(QTextDocument(), Look.of(Theme("light")))
    document.append("http://[ and https://example.com")
    document.flush(final=True)
    assert links(document.document) == ["https://example.com"]


def test_a_definition_of_a_link_is_text_like_any_other(qapp: object) -> None:
    document = MarkdownDocument(QTextDocument(), Look.of(Theme("light")))
    document.append("see [1]\n\n[1]: https://example.com\n")
    document.flush(final=True)
    assert document.document.toPlainText().split("\n") == ["see [1]", "[1]: https://example.com"]
    assert links(document.document) == ["https://example.com"]
