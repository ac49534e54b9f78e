"""The target that shows what a model says."""

from __future__ import annotations

import os
from functools import cache

from guard import confined
from PySide6.QtGui import QGuiApplication, QTextDocument

from app.composition import application
from app.theme import Theme
from app.views.chat.look import Look
from app.views.chat.markdown import safe_link
from app.views.chat.markdown_document import MarkdownDocument


def markdown(data: bytes) -> None:
    """As one text and in two pieces: the same, nothing is loaded, and every link is harmless."""
    text = data.decode("utf-8", "replace")
    whole, streamed = MarkdownDocument(QTextDocument(), look()), MarkdownDocument(QTextDocument(), look())
    with confined():
        whole.append(text)
        for piece in (text[: len(text) // 2], text[len(text) // 2 :]):
            streamed.append(piece)
            streamed.flush()
        for document in (whole, streamed):
            document.flush(final=True)
    assert whole.source == streamed.source
    # Blanks at the end of a code block that was never closed are not shown at once.
    assert whole.document.toPlainText().rstrip(" \t") == streamed.document.toPlainText().rstrip(" \t")
    assert all(safe_link(link) for link in whole.links())


@cache
def look() -> Look:
    _qt()
    return Look.of(Theme("light"))


@cache
def _qt() -> QGuiApplication:
    """An application must be there, and stay, for fonts to be."""
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    return application([])
