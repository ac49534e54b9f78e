"""Templates that try to run long or to fill the memory."""

from __future__ import annotations

import time
import tracemalloc
from pathlib import Path

import pytest

from engine.errors import TemplateError
from engine.messages import Message
from engine.text.sandbox import Limits
from engine.text.template import ChatTemplate

LIMITS = Limits(seconds=0.5, text=2_000_000, total=20_000_000)
LOOPS = "{% for a in range(99999) %}{% for b in range(99999) %}"
END = "{% endfor %}{% endfor %}"
DOUBLING = "{% set n = namespace(x='abcdefgh', l=['abcdefgh']) %}{% for i in range(60) %}"

LONG = {
    "nested loops": f"{LOOPS}{END}",
    "a range too long": "{% for a in range(10 ** 9) %}{% endfor %}",
    "loops in a macro": f"{{% macro m() %}}{LOOPS}{END}{{% endmacro %}}{{{{ m() }}}}",
    "a loop filter": "{% for a in range(99999) if range(99999) | sum < 0 %}{% endfor %}",
    "macros that call themselves": (
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}"
    ),
    "endless recursion": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "blocks that call themselves": (
        "{% set n = namespace(d=0) %}{% block b %}{% set n = namespace(d=0) %}{{ self.b() }}{% endblock %}"
    ),
    "a recursive loop": "{% for a in [[]] recursive %}{{ loop([[]]) }}{% endfor %}",
}
TWO_DEEP = (
    "{% set n = namespace(a=[1.5], b=[1.5], t=(1.5,)) %}{% for i in range(60) %}"
    "{% set n.a = [n.a, n.a] %}{% set n.b = [n.b, n.b] %}{% set n.t = (n.t, n.t) %}{% endfor %}"
)
"""Lists and a tuple of 2^60 values, in sixty objects each."""
DEEP = {
    f"deep: {use}": TWO_DEEP + use
    for use in (
        "{{ n.a == n.b }}",
        "{{ n.a != n.b }}",
        "{{ 1 < 2 < 3 and n.a < n.b }}",
        "{{ n.a in [n.b] }}",
        "{{ n.t in {} }}",
        "{{ n.t not in {} }}",
        "{{ n.a is eq n.b }}",
        "{{ n.a is in [n.b] }}",
        "{{ n.t is in {} }}",
        "{{ [n.a] | select('equalto', n.b) | list }}",
        "{{ [{'x': n.a}] | selectattr('x', 'eq', n.b) | list }}",
        "{{ [n.t] | unique | list }}",
        "{{ [n.a, n.b] | max }}",
        "{{ [{'x': n.a}, {'x': n.b}] | map(attribute='x') | min }}",
        "{{ [n.a, n.b] | sort }}",
        "{{ [{'x': n.a}, {'x': n.b}] | groupby('x') }}",
        "{{ {'x': n.a, 'y': n.b} | dictsort(by='value') }}",
        "{{ [n.a].index(n.b) }}",
        "{{ [n.a].count(n.b) }}",
        "{{ {}.get(n.t) }}",
        "{{ {}[n.t] }}",
        "{{ {n.t: 1} | length }}",
        "{{ dict([(n.t, 1)]) | length }}",
        "{% for a in [n.a, n.b] %}{{ loop.changed(a) }}{% endfor %}",
        "{{ raise_exception(n.a) }}",
        "{{ 1 | tojson(separators=n.a) }}",
    )
}
LARGE = {
    "a large output": "{% for a in range(99999) %}" + "x" * 1000 + "{% endfor %}",
    "a large output in a macro": (
        "{% macro m() %}{% for a in range(99999) %}" + "x" * 1000 + "{% endfor %}{% endmacro %}{% set y = m() %}"
    ),
    "a repeated string": "{% set y = 'x' * 10 ** 9 %}",
    "a repeated list": "{% set y = 10 ** 9 * [1] %}",
    "doubling with ~": DOUBLING + "{% set n.x = n.x ~ n.x %}{% endfor %}",
    "doubling with +": DOUBLING + "{% set n.x = n.x + n.x %}{% endfor %}",
    "doubling a list": DOUBLING + "{% set n.l = n.l + n.l %}{% endfor %}",
    "doubling with a block": DOUBLING + "{% set n.x %}{{ n.x }}{{ n.x }}{% endset %}{% endfor %}",
    "doubling with join": DOUBLING + "{% set n.x = [n.x, n.x] | join %}{% endfor %}",
    "doubling with a separator": DOUBLING + "{% set n.x = n.x.join(['', '', '']) %}{% endfor %}",
    "doubling with replace": DOUBLING + "{% set n.x = n.x | replace('a', n.x) %}{% endfor %}",
    "doubling with the method": DOUBLING + "{% set n.x = n.x.replace('a', n.x) %}{% endfor %}",
    # In one step, so that it must be stopped before and not after.
    "many separators": "{% set y = range(9999) | join('x' * 40000) %}",
    "many separators by method": "{% set y = ('x' * 40000).join(range(9999) | map('string') | list) %}",
    "many replacements": "{% set y = ('a' * 20000) | replace('a', 'x' * 20000) %}",
    "many replacements by keyword": "{% set y = ('a' * 20000) | replace(old='a', new='x' * 20000) %}",
    "many replacements by method": "{% set y = ('a' * 20000).replace('a', 'x' * 20000) %}",
    "one attribute many times": "{% set y = ([{'x': 'x' * 40000}] * 9999) | map(attribute='x') | join %}",
    "a sum of lists": "{{ ([[1] * 3000] * 3000) | sum(start=[]) | length }}",
    "indenting with a text": "{{ ('x\n' * 20000) | indent('y' * 20000) }}",
    "JSON with long separators": "{{ ([1] * 20000) | tojson(separators=('y' * 20000, ':')) }}",
    "a billion laughs": DOUBLING + "{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l }}",
    "a billion laughs as JSON": DOUBLING + "{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l | tojson }}",
    "a billion laughs in upper case": DOUBLING + "{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l | upper }}",
    "lists of lists": "{% set y = ([range(9999)] * 9999) | map('list') | list %}",
    "wide formatting": "{{ '{:999999999}'.format('x') }}",
    "wide formatting with %": "{{ '%999999999d' % 1 }}",
    "padding": "{{ 'x'.ljust(999999999) }}",
    "padding by subscript": "{{ 'x'['zfill'](999999999) }}",
    "centering": "{{ 'x' | center(999999999) }}",
    "indenting": "{{ 'x\n' | indent(999999999) }}",
    "rounding": "{{ 1.5 | round(999999999, 'floor') }}",
    "a tower of powers": "{{ 9 ** 9 ** 9 ** 9 }}",
    "squaring": "{% set n = namespace(x=9) %}{% for i in range(60) %}{% set n.x = n.x * n.x %}{% endfor %}",
    "batches": "{{ [1] | batch(999999999, 0) | list }}",
    "slices": "{{ [1] | slice(999999999) | list }}",
}


@pytest.mark.parametrize("source", [pytest.param(source, id=name) for name, source in (LONG | LARGE | DEEP).items()])
def test_a_hostile_template_is_stopped(source: str) -> None:
    tracemalloc.start()
    began = time.monotonic()
    try:
        with pytest.raises(TemplateError):
            ChatTemplate(source, Path("t.jinja"), limits=LIMITS).render([Message("user", "Hi")], 0.9)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert time.monotonic() - began < 10
    assert peak < 100_000_000


def test_the_reason_is_given() -> None:
    with pytest.raises(TemplateError, match=r"it runs for more than 0\.5 seconds"):
        ChatTemplate(LONG["nested loops"], Path("t.jinja"), limits=LIMITS).render([Message("user", "Hi")], 0.9)
    with pytest.raises(TemplateError, match="it makes a text of more than 2,000,000 characters"):
        ChatTemplate(LARGE["a large output"], Path("t.jinja"), limits=LIMITS).render([Message("user", "Hi")], 0.9)


def test_a_long_conversation_is_within_the_limits() -> None:
    source = """
{%- for m in messages -%}
    {%- if loop.index0 < messages | length and messages[: loop.index] | selectattr('role', 'equalto', 'user') | list -%}
        {{ m.role ~ ': ' ~ m.content | trim ~ '\n' }}
    {%- endif -%}
{%- endfor -%}
"""
    messages = [Message("user", "word " * 4_000)] * 200
    assert len(ChatTemplate(source, Path("t.jinja")).render(messages, 0.9)) == 200 * (6 + 19_999 + 1)
