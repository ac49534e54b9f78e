from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QPointF, QUrl
from PySide6.QtGui import QGuiApplication, QTextDocument

from app.theme import Theme
from app.views.chat.copy_button import CopyButton
from app.views.chat.highlight import spans as coloured
from app.views.chat.look import CODE_HEAD, CODE_PAD, Look
from app.views.chat.markdown import safe_link
from app.views.chat.markdown_document import MarkdownDocument
from app.views.chat.text_body import TextBody

SAMPLE = """# Title

First paragraph with **bold**, *italic*, `code` and ~~gone~~.
A second line. https://example.com/a_b, and [a link](https://example.org).

1. one
2. two
   - nested
   - more

     a paragraph
3. three
1. four

- a

- b

> quote with `code`
> more
>
> > deeper

```python
def f(x: int) -> str:
    return f"{x}"


```

| a | b |
|---|--:|
| 1 | 2 |

Heading
=======

    indented code

---

~~~
plain fence
~~~
End \\* &amp; done."""


def rendered(theme: Theme, text: str, cuts: list[int] | None = None) -> MarkdownDocument:
    """The document after streaming `text` in pieces that end at `cuts`."""
    document = QTextDocument()
    document.setTextWidth(600)
    result = MarkdownDocument(document, Look.of(theme))
    start = 0
    for cut in sorted(set(cuts or [])):
        result.append(text[start:cut])
        result.flush()
        start = cut
    result.append(text[start:])
    result.flush(final=True)
    return result


@pytest.mark.parametrize("step", [1, 2, 3, 7, 50])
def test_streaming_ends_where_rendering_at_once_does(theme: Theme, step: int) -> None:
    whole = rendered(theme, SAMPLE)
    streamed = rendered(theme, SAMPLE, list(range(0, len(SAMPLE), step)))
    assert streamed.document.toHtml() == whole.document.toHtml()
    assert streamed.decorations == whole.decorations
    assert streamed.document.size() == whole.document.size()


@given(
    blocks=st.lists(
        st.sampled_from(
            [
                "para one\nline",
                "- a\n- b",
                "1. x\n2. y",
                "# H",
                "```\ncode\n```",
                "> q",
                "| a |\n|---|\n| 1 |",
                "---",
                "**b** `c`",
            ]
        ),
        min_size=1,
        max_size=6,
    ),
    cuts=st.lists(st.integers(0, 120), max_size=20),
)
def test_any_cut_of_any_blocks_renders_the_same(qapp: object, blocks: list[str], cuts: list[int]) -> None:
    theme = Theme("light")
    text = "\n\n".join(blocks)
    assert rendered(theme, text, cuts).document.toHtml() == rendered(theme, text).document.toHtml()


def test_a_long_fence_streams_to_the_same_text_and_one_code_block(theme: Theme) -> None:
    code = "\n".join(f"value_{i} = {i}  # line" for i in range(500))
    text = f"Before\n\n```python\n{code}\n```\n\nAfter"
    streamed = rendered(theme, text, list(range(0, len(text), 17)))
    assert streamed.document.toPlainText() == rendered(theme, text).document.toPlainText()
    assert [block.source for block in streamed.decorations.code] == [code]


@pytest.mark.parametrize(
    "kind", ["One paragraph of the answer, with some words.\n\n", "- an item of a long list\n", "x = compute(1)\n"]
)
def test_a_flush_rewrites_little_however_long_the_answer_is(theme: Theme, kind: str) -> None:
    text = ("```python\n" if kind.startswith("x") else "") + kind * (50_000 // len(kind))
    document = QTextDocument()
    removed: list[int] = []
    document.contentsChange.connect(lambda _position, gone, _added: removed.append(gone))
    markdown = MarkdownDocument(document, Look.of(theme))
    for start in range(0, len(text), 40):
        markdown.append(text[start : start + 40])
        markdown.flush()
    assert document.characterCount() > 40_000
    assert max(removed) < 2_500


def test_html_is_text_and_nothing_is_loaded(theme: Theme) -> None:
    text = '<img src=x onerror="alert(1)"> <script>x</script>\n\n![pic](https://evil.example/x.png)\n\n<div>block</div>'
    result = rendered(theme, text)
    shown = result.document.toPlainText()
    assert '<img src=x onerror="alert(1)">' in shown
    assert "<script>x</script>" in shown
    assert "<div>block</div>" in shown
    assert "\ufffc" not in shown, "an image object"
    assert (
        result.document.resource(QTextDocument.ResourceType.ImageResource.value, QUrl("https://evil.example/x.png"))
        is None
    )


@pytest.mark.parametrize(
    ("target", "safe"),
    [
        ("https://example.com", True),
        ("mailto:a@b.c", True),
        ("javascript:alert(1)", False),
        ("file:///etc/passwd", False),
        ("data:text/html,x", False),
        ("//host/x", False),
    ],
)
def test_only_harmless_links_can_be_clicked(theme: Theme, target: str, safe: bool) -> None:
    assert safe_link(target) is safe
    assert not safe_link("http://[bad")
    html = rendered(theme, f"[text]({target})").document.toHtml()
    assert ("<a href" in html) is safe


def test_a_link_opens_on_a_click_only(theme: Theme, qtbot: object) -> None:
    body = TextBody(theme, "answer")
    body.set_source("See https://example.com/page now")
    body.resize(400, body.height_for(400))
    opened: list[str] = []
    body.link_clicked.connect(opened.append)
    body.show()
    assert opened == []
    layout = body.markdown.document.documentLayout()
    spot = next(QPointF(x, 10) for x in range(400) if layout.anchorAt(QPointF(x, 10)))
    from PySide6.QtCore import Qt
    from PySide6.QtTest import QTest

    QTest.mouseClick(body, Qt.MouseButton.LeftButton, pos=spot.toPoint())
    assert opened == ["https://example.com/page"]


def test_copies_equal_the_source(theme: Theme) -> None:
    body = TextBody(theme, "answer")
    body.set_source(SAMPLE)
    body.select_all()
    body.copy()
    assert QGuiApplication.clipboard().text() == SAMPLE
    body._selection.start(1)
    body._selection.extend(body.markdown.document.characterCount() - 2)
    part = body.selected_text()
    assert "\u2029" not in part
    assert "\u2028" not in part
    assert "def f(x: int) -> str:\n    return" in part
    code = body.markdown.decorations.code[0]
    body._buttons[0].click()
    assert QGuiApplication.clipboard().text() == code.source == 'def f(x: int) -> str:\n    return f"{x}"\n\n'


def test_the_buttons_of_code_stand_at_their_blocks_while_it_streams(theme: Theme) -> None:
    streamed, whole = (TextBody(theme, "answer") for _ in range(2))
    for body in (streamed, whole):
        body.height_for(400)
    text = "\n\n".join(f"Some words before block {i}. " * 9 + "\n\n```python\nprint(1)\n```" for i in range(6))
    for i in range(0, len(text), 37):
        streamed.append(text[i : i + 37])
        streamed.flush()
    streamed.flush(final=True)
    whole.set_source(text)
    places = [[button.pos() for button in body.findChildren(CopyButton)] for body in (streamed, whole)]
    assert places[0] == places[1]
    assert len({place.y() for place in places[0]}) == 6
    for body in (streamed, whole):
        body.height_for(250)
    places = [[button.pos() for button in body.findChildren(CopyButton)] for body in (streamed, whole)]
    assert places[0] == places[1]


@pytest.mark.parametrize("text", ["```python\nprint(1)\n```\n\nThe end.", "```\none line", "- ```js\n  x\n  ```"])
def test_code_that_comes_first_has_its_head(theme: Theme, text: str) -> None:
    for step in (1, len(text)):
        body = TextBody(theme, "Answer")
        body.resize(400, 300)
        body.height_for(400)
        for i in range(0, len(text), step):
            body.append(text[i : i + step])
            body.flush()
        body.flush(final=True)
        (button,) = body.findChildren(CopyButton)
        assert button.y() >= 0
        code = body._markdown.decorations.code[0]
        assert body.top_of(code.start) >= CODE_HEAD
        assert body.height_for(400) > body.top_of(code.end) + 10
    # What else comes first stands at the top.
    body.set_source("Words.\n\n" + text)
    assert body.top_of(0) < CODE_HEAD


@pytest.mark.parametrize("step", [1, 9, 1000])
def test_code_below_a_table_does_not_lie_on_it(theme: Theme, step: int) -> None:
    text = "| a | b |\n|---|---|\n| 1 | 2 |\n\n```python\nprint(1)\n```\n\n| c |\n|---|\n| 3 |\n\n```\nx\n```\nThe end."
    document = rendered(theme, text, list(range(0, len(text), step)))
    layout = document.document.documentLayout()
    assert len(document.decorations.code) == 2
    for code in document.decorations.code:
        block = document.document.findBlock(code.start)
        above = layout.blockBoundingRect(block.previous()).bottom()
        assert layout.blockBoundingRect(block).top() - CODE_HEAD - CODE_PAD >= above


def test_an_unfinished_line_does_not_flicker(theme: Theme) -> None:
    document = QTextDocument()
    markdown = MarkdownDocument(document, Look.of(theme))
    for text, shown in (
        ("Some text\n-", "Some text"),
        (" item", "Some text\nitem"),
        ("\n\nand **bo", "Some text\nitem\nand bo"),
        ("ld** done", "Some text\nitem\nand bold done"),
    ):
        markdown.append(text)
        markdown.flush()
        assert document.toPlainText() == shown


@given(st.text(max_size=200), st.sampled_from(["python", "json", "c++", "nonsense", "", "html"]))
def test_highlighting_never_changes_the_code(code: str, language: str) -> None:
    assert "".join(text for text, _ in coloured(code, language)) == code
