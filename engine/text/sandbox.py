"""A jinja2 sandbox in which a hostile chat template can neither run long nor fill the memory.

jinja2's own sandbox keeps a template away from Python's internals. Here each rendering also has a
`Budget` of time and of characters. It is charged wherever a template can repeat or grow something:
on every pass through a loop, a macro or a block (the calls are added to the syntax tree), for every
printed or concatenated value, for what is compared or looked up (lists that hold one list twice, sixty
levels deep, take as long as 2^60 values), and before and after every filter, method and growing operator.
What chat templates have no use for, and what could allocate much in one step, is taken away.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any, ClassVar, Final, cast

import jinja2
from jinja2 import nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import BlockReference, Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

_BUDGET: Final = " budget"
"""Key of the rendering's Budget among the template's variables; no template can name it."""
_REMOVED_FILTERS: Final = frozenset(
    ("batch", "center", "format", "pprint", "random", "slice", "striptags", "urlize", "wordwrap", "xmlattr")
)
_BOUNDED_FILTERS: Final = {"indent", "round", "tojson"}
_MAX_FILTER_ARGUMENT: Final = 64
"""Of a number, and characters of a text, which these filters may repeat."""
_CONTAINER_FILTERS: Final = frozenset(
    ("attr", "count", "d", "default", "first", "items", "last", "length", "list", "map", "reject", "rejectattr")
) | frozenset(("reverse", "select", "selectattr", "sum"))
"""These take a list or a mapping as it is; the others make text of it, or compare what it holds."""
_LISTING_FILTERS: Final = frozenset(("groupby", "join", "max", "min", "sort", "unique"))
"""These read all of an iterator, which therefore is read, and measured, before."""
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

    @staticmethod
    @pass_context
    def weighed(context: Context, value: object) -> object:
        """A value that is about to be compared, or hashed."""
        if not isinstance(value, (str, int)):
            _budget(context).measure(value)
        return value

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
        if isinstance(obj, (Macro, LoopContext, BlockReference)) or getattr(obj, "jinja_pass_arg", None):
            return super().call(context, obj, *args, **kwargs)  # a template's own, or one of those above
        owner = getattr(obj, "__self__", None)
        budget = _budget(context)
        if not isinstance(owner, str):
            # Methods of lists and mappings compare what they are given, and helpers make text of it.
            budget.measure((args, kwargs))
            return super().call(context, obj, *args, **kwargs)
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
    def charged(context: Context, value: Any, /, *args: Any, **kwargs: Any) -> Any:
        budget = _budget(context)
        if name in _LISTING_FILTERS and not isinstance(value, Sized):
            value = list(value)
        if name in _CONTAINER_FILTERS:
            budget.spend(_length(value))
        else:
            budget.measure(value)
        budget.measure((args, kwargs))
        if name in _BOUNDED_FILTERS:
            _check_bounded(name, (*args, *kwargs.values()))
        elif name == "sum" and not isinstance(args[1] if len(args) > 1 else kwargs.get("start", 0), (int, float)):
            raise SecurityError("only numbers can be summed up")
        elif name == "replace":
            budget.spend(_growth(name, str(value), *args, *(kwargs[key] for key in ("old", "new") if key in kwargs)))
        elif name == "join":
            budget.spend(_growth(name, str(args[0] if args else kwargs.get("d", "")), value))
        first = {
            "context": (context,),
            "eval_context": (context.eval_ctx,),
            "environment": (context.environment,),
        }.get(wants or "", ())
        result: object = function(*first, value, *args, **kwargs)
        budget.spend(_length(result))
        return result

    return charged


def _check_bounded(name: str, arguments: Sequence[object]) -> None:
    """Raises `RenderLimitError` for a large argument of a filter that makes much of a little."""
    for value in arguments:
        if isinstance(value, (list, tuple)):
            _check_bounded(name, cast(Sequence[object], value))
        size = len(value) if isinstance(value, str) else value if isinstance(value, int) else 0
        if size > _MAX_FILTER_ARGUMENT:
            raise RenderLimitError(f"it calls the filter {name} with {value!r:.20}")


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
    """Charges every pass through a body, and sends `~` through `TemplateSandbox.concatenate`.

    What is compared goes through `TemplateSandbox.weighed`, one side of it, since a comparison is no longer than the
    shorter side; and what is hashed.
    """

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

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if any(operand.op in ("in", "notin") for operand in node.ops):
            node.expr = _weighed(node.expr)
        for operand in node.ops:
            operand.expr = _weighed(operand.expr)
        return node

    def visit_Test(self, node: nodes.Test) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if node.args:
            node.node = _weighed(node.node)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if not isinstance(node.arg, nodes.Slice):
            node.arg = _weighed(node.arg)
        return node

    def visit_Pair(self, node: nodes.Pair) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.key = _weighed(node.key)
        return node

    def _charge_body(self, node: nodes.For | nodes.Macro | nodes.Block | nodes.CallBlock) -> nodes.Node:
        self.generic_visit(node)
        literal = sum(len(data.data) for data in node.find_all(nodes.TemplateData))
        tick = _call("tick", [nodes.Const(literal)], node.lineno)
        node.body.insert(0, nodes.ExprStmt(tick, lineno=node.lineno))
        return node


def _weighed(node: nodes.Expr) -> nodes.Expr:
    return node if isinstance(node, nodes.Const) else _call("weighed", [node], node.lineno)


def _call(name: str, args: list[nodes.Expr], lineno: int) -> nodes.Call:
    target = nodes.EnvironmentAttribute(name, lineno=lineno)
    return nodes.Call(target, args, [], None, None, lineno=lineno)


class _GenerationTag(Extension):
    """`{% generation %}` marks what a model wrote, for training; a prompt just contains it."""

    tags: ClassVar[set[str]] = {"generation"}  # pyright: ignore[reportIncompatibleVariableOverride]

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
