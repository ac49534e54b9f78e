"""Any template, however it is put together, ends soon, with little output, and reaches nothing but the conversation."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import TemplateError
from engine.messages import Message
from engine.text.sandbox import Limits
from engine.text.template import ChatTemplate

LIMITS = Limits(seconds=0.25, text=200_000, total=2_000_000)
SECRET = "cc0ffee1"
"""Stands in a file beside the template; no output may show it."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("template")
    (place / "secret.txt").write_text(SECRET, encoding="utf-8")
    return place


VALUES = """
messages messages[0] m m.content 'x' x 7 10**5 [1,2] {'a':1} namespace(x=1) ns true none '' range(99999)
raise_exception strftime_now self loop cycler joiner lipsum config caller context environment request open
__builtins__
"""
NAMES = """
__class__ __mro__ __subclasses__ __globals__ __init__ __builtins__ __import__ __getattribute__ _module
_environment environment loader get_source filters append update pop format format_map join replace ljust zfill
gi_frame f_globals cr_frame func_globals x content
"""
FILTERS = """
list join tojson upper string attr('__class__') map(attribute='__class__') map('attr','__globals__') sum reverse
batch(99999) indent(99999) replace('','xxxxxxxx') sort length safe pprint format(9) center(99999) first last
unique items default('x'*99999)
"""


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    names = st.sampled_from(NAMES.split())
    return st.one_of(
        st.builds("{}.{}".format, inner, names),
        st.builds("{}['{}']".format, inner, names),
        st.builds("{}|{}".format, inner, st.sampled_from(FILTERS.split())),
        st.builds("({} {} {})".format, inner, st.sampled_from(["+", "*", "~", "**", "%", "in", "and"]), inner),
        st.builds("{}({})".format, inner, inner),
        st.builds("{}()".format, inner),
        st.builds("{}[{}:{}]".format, inner, inner, inner),
    )


EXPRESSIONS = st.recursive(st.sampled_from(VALUES.split()), grown, max_leaves=5)


def nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("{{% for m in {} %}}{}{{% endfor %}}".format, EXPRESSIONS, inner),
        st.builds("{{% for m in range(99999) %}}{}{{% endfor %}}".format, inner),
        st.builds("{{% if {} %}}{}{{% else %}}{}{{% endif %}}".format, EXPRESSIONS, inner, inner),
        st.builds("{{% set x = {} %}}{}".format, EXPRESSIONS, inner),
        st.builds(
            "{{% set ns = namespace(x='ab') %}}{{% for i in range(99) %}}{{% set ns.x = {} %}}{{% endfor %}}{}".format,
            EXPRESSIONS,
            inner,
        ),
        st.builds("{{% macro f(x) %}}{}{{{{ f(x) }}}}{{% endmacro %}}{{{{ f({}) }}}}".format, inner, EXPRESSIONS),
        st.builds("{{% set x %}}{}{{% endset %}}{}".format, inner, inner),
        st.builds("{{% filter {} %}}{}{{% endfilter %}}".format, st.sampled_from(FILTERS.split()), inner),
        st.builds("{}{}".format, inner, inner),
    )


STATEMENTS = st.sampled_from(
    ("{% include 'secret.txt' %}", "{% import 'secret.txt' as s %}", "{% extends 'secret.txt' %}", "{#", "{{", "text")
) | st.sampled_from(
    ("{% from 'secret.txt' import x %}", "{% do messages.clear() %}", "{% break %}", "{% generation %}")
)
TEMPLATES = st.recursive(st.builds("{{{{ {} }}}}".format, EXPRESSIONS) | STATEMENTS, nested, max_leaves=5)


def render(folder: Path, source: str) -> str | None:
    """What the template prints, or None when it is refused; in either case soon, and the conversation stays."""
    messages = [Message("user", "Hello")]
    began = time.monotonic()
    try:
        template = ChatTemplate(source, folder / "chat_template.jinja", limits=LIMITS)
        shown = template.render(messages, effort=0.9)
    except TemplateError as error:
        str(error).encode()
        shown = None
    # A single step that is not counted would be far above this; the machine may be busy.
    assert time.monotonic() - began < 5
    assert messages == [Message("user", "Hello")]
    return shown


@settings(max_examples=150)
@given(TEMPLATES)
def test_any_template_ends_and_reaches_nothing(folder: Path, source: str) -> None:
    shown = render(folder, source)
    if shown is not None:
        assert len(shown) <= LIMITS.total
        assert SECRET not in shown
        assert "<module" not in shown
        assert "<class '" not in shown


@settings(max_examples=150)
@given(st.text(alphabet=st.sampled_from("{}%#-+*|.[]()'\"= \nabforinif~"), max_size=60))
def test_any_text_is_a_template_or_refused(folder: Path, source: str) -> None:
    render(folder, source)
