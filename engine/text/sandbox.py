"""A jinja2 sandbox in which a hostile chat template can neither run long nor fill the memory.

jinja2's own sandbox keeps a template away from Python's internals. Here each rendering also has a
`Budget` of time and of characters. It is charged wherever a template can repeat or grow something:
on every pass through a loop, a macro or a block (the calls are added to the syntax tree), for every
printed or concatenated value, and before and after every filter, method and growing operator. What
chat templates have no use for, and what could allocate much in one step, is taken away.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass
from typing import Any, ClassVar, Final, cast

import jinja2
from jinja2 import nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

_BUDGET: Final = " budget"
"""Key of the rendering's Budget among the template's variables; no template can name it."""
_REMOVED_FILTERS: Final = frozenset(
    ("batch", "center", "format", "pprint", "random", "slice", "striptags", "urlize", "wordwrap", "xmlattr")
)
_BOUNDED_FILTERS: Final = {"indent", "round", "tojson"}
_MAX_FILTER_INT: Final = 64
_CONTAINER_FILTERS: Final = frozenset(
    ("attr", "count", "d", "default", "dictsort", "first", "groupby", "items", "last", "length", "list", "map", "max")
) | frozenset(("min", "reject", "rejectattr", "reverse", "select", "selectattr", "sort", "sum", "unique"))
"""These take a list or a mapping as it is; the others make text of it."""
_REFUSED_STR_METHODS: Final = frozenset(
    ("center", "encode", "expandtabs", "format", "format_map", "ljust", "maketrans", "rjust", "translate", "zfill")
)


class RenderLimitError(jinja2.TemplateRuntimeError):
    """A template went over its budget."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one rendering may use."""

    seconds: float = 5.0
    text: int = 16_000_000
    """Characters of one value; a prompt of a million tokens has about five million."""
    total: int = 400_000_000
    """Characters of all values that are printed, concatenated or passed to filters."""


class Budget:
    """What is left of the limits of one rendering."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._left = limits.total
        self._deadline = time.monotonic() + limits.seconds

    def spend(self, size: int = 0) -> None:
        """Charge one step that makes or reads `size` characters or items.

        Raises:
            RenderLimitError: it is too much, or time is up.
        """
        self._left -= size
        if size > self._limits.text or self._left < 0:
            raise RenderLimitError(f"it makes a text of more than {self._limits.text:,} characters")
        if time.monotonic() > self._deadline:
            raise RenderLimitError(f"it runs for more than {self._limits.seconds:g} seconds")

    def measure(self, value: object) -> None:
        """Charge what `value` would take as text, before anything turns it into text."""
        size, pending = 0, [value]
        while pending:
            item = pending.pop()
            if isinstance(item, str):
                size += len(item)
            elif isinstance(item, Mapping):
                pending += cast(Mapping[object, object], item).keys()
                pending += cast(Mapping[object, object], item).values()
            elif isinstance(item, (list, tuple)):
                pending += cast(list[object], item)
            size += 1
            if size % 4096 == 0 or size > self._limits.text:
                self.spend(size)
        self.spend(size)


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """Compiles templates and renders them under a budget."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, limits: Limits, helpers: Mapping[str, Callable[..., object]]) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,  # nothing of a template runs before there is a budget
            extensions=["jinja2.ext.loopcontrols", _GenerationTag],
            finalize=_printed,
        )
        self._limits = limits
        basics: dict[str, Any] = self.globals
        self.globals = {name: basics[name] for name in ("range", "dict", "namespace")} | dict(helpers)
        self.filters["tojson"] = helpers["tojson"]
        for name in _REMOVED_FILTERS:
            del self.filters[name]
        self.filters = {name: _charged(name, function) for name, function in self.filters.items()}

    def load(self, source: str, filename: str) -> jinja2.Template:
        """Compile `source`.

        Raises:
            jinja2.TemplateSyntaxError: with the line.
        """
        tree = _AddCharges().visit(self.parse(source, filename=filename))
        code = self.compile(tree, filename=filename)
        return self.template_class.from_code(self, code, self.make_globals(None))

    def run(self, template: jinja2.Template, variables: Mapping[str, object]) -> str:
        """Render a template of this sandbox.

        Raises:
            RenderLimitError: the budget is used up.
            Exception: whatever the template raises.
        """
        budget = Budget(self._limits)
        pieces: list[str] = []
        size = 0
        for piece in template.generate({**variables, _BUDGET: budget}):
            pieces.append(piece)
            size += len(piece)
            if size > self._limits.text:
                budget.spend(size)
        return "".join(pieces)

    # Targets of the calls that _AddCharges writes into a template.

    @staticmethod
    @pass_context
    def tick(context: Context, size: int) -> bool:
        """One pass through a body that holds `size` characters of literal text."""
        _budget(context).spend(size)
        return True

    @staticmethod
    @pass_context
    def concatenate(context: Context, *parts: object) -> str:
        """The `~` operator."""
        _budget(context).measure(parts)
        return "".join(map(str, parts))

    # Hooks of the sandbox.

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, str):
            return attr not in _REFUSED_STR_METHODS and super().is_safe_attribute(obj, attr, value)
        return not isinstance(obj, (int, float, complex, bytes)) and super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> None:
        """Leave `str.format` to `is_safe_attribute`, which refuses it: a format can ask for any width."""

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        budget = _budget(context)
        match operator, left, right:
            case "**", _, _ if not (abs(left) <= 2**32 and abs(right) <= 32):
                raise RenderLimitError(f"it computes {left!r:.20} ** {right!r:.20}")
            case "*", int(), int() if left.bit_length() + right.bit_length() > 256:
                raise RenderLimitError("it computes with numbers of more than 256 bits")
            case "*", Sized(), int():
                budget.spend(len(left) * max(right, 0))
            case "*", int(), Sized():
                budget.spend(len(right) * max(left, 0))
            case "+", Sized(), Sized():
                budget.spend(len(left) + len(right))
            case "%", str(), _:
                raise SecurityError("formatting with % is not available")
            case _:
                budget.spend()
        return super().call_binop(context, operator, left, right)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        owner = getattr(obj, "__self__", None)
        if not isinstance(owner, str):
            return super().call(context, obj, *args, **kwargs)
        budget = _budget(context)
        budget.measure((owner, args))
        budget.spend(_growth(obj.__name__, owner, *args))
        result = super().call(context, obj, *args, **kwargs)
        budget.spend(_length(result))
        return result


def _budget(context: Context) -> Budget:
    return context.parent[_BUDGET]


@pass_context
def _printed(context: Context, value: object) -> object:
    """Charge a value that is about to be printed, wherever it goes."""
    _budget(context).measure(value)
    return value


def _charged(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that is charged for what it takes and what it makes."""
    wants = getattr(getattr(function, "jinja_pass_arg", None), "name", None)

    @pass_context
    @functools.wraps(function)
    def charged(context: Context, /, *args: Any, **kwargs: Any) -> Any:
        budget = _budget(context)
        if name in _BOUNDED_FILTERS:
            for value in (*args[1:], *kwargs.values()):
                if isinstance(value, int) and value > _MAX_FILTER_INT:
                    raise RenderLimitError(f"it calls the filter {name} with {value!r:.20}")
        if name in _CONTAINER_FILTERS:
            budget.spend(_length(args[0] if args else None))
        else:
            budget.measure((args, kwargs))
        if name == "replace":
            budget.spend(_growth("replace", str(args[0]), *args[1:]))
        elif name == "join":
            args = (items := list(args[0]), *args[1:])
            budget.measure(items)
            budget.spend(_growth("join", str(args[1] if len(args) > 1 else kwargs.get("d", "")), items))
        first = {
            "context": (context,),
            "eval_context": (context.eval_ctx,),
            "environment": (context.environment,),
        }.get(wants or "", ())
        result: object = function(*first, *args, **kwargs)
        budget.spend(_length(result))
        return result

    return charged


def _length(value: object) -> int:
    return len(value) if isinstance(value, Sized) else 0


def _growth(operation: str, text: str, *args: Any) -> int:
    """Characters that `replace` or `join` adds to the size of its operands."""
    if operation == "replace" and len(args) >= 2:
        return text.count(str(args[0])) * len(str(args[1]))
    if operation == "join" and args and isinstance(args[0], Sized):
        return len(text) * len(args[0])
    return 0


class _AddCharges(NodeTransformer):
    """Charges every pass through a body, and sends `~` through `TemplateSandbox.concatenate`."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        self._charge_body(node)
        if node.test is not None:
            node.test = nodes.And(_call("tick", [nodes.Const(0)], node.lineno), node.test, lineno=node.lineno)
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:  # noqa: N802
        return self._charge_body(node)

    def visit_Block(self, node: nodes.Block) -> nodes.Node:  # noqa: N802
        return self._charge_body(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:  # noqa: N802
        return self._charge_body(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _call("concatenate", node.nodes, node.lineno)

    def _charge_body(self, node: nodes.For | nodes.Macro | nodes.Block | nodes.CallBlock) -> nodes.Node:
        self.generic_visit(node)
        literal = sum(len(data.data) for data in node.find_all(nodes.TemplateData))
        tick = _call("tick", [nodes.Const(literal)], node.lineno)
        node.body.insert(0, nodes.ExprStmt(tick, lineno=node.lineno))
        return node


def _call(name: str, args: list[nodes.Expr], lineno: int) -> nodes.Call:
    target = nodes.EnvironmentAttribute(name, lineno=lineno)
    return nodes.Call(target, args, [], None, None, lineno=lineno)


class _GenerationTag(Extension):
    """`{% generation %}` marks what a model wrote, for training; a prompt just contains it."""

    tags: ClassVar[set[str]] = {"generation"}  # pyright: ignore[reportIncompatibleVariableOverride]

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
