"""A Jinja environment for templates that a file brings: they cannot reach out, run on for ever, or fill the memory.

On top of Jinja's immutable sandbox: every turn of a loop, call of a macro and assignment looks at a deadline; products,
powers and arguments of filters are bounded, since one of them could take all the time or memory there is; and while
`bounded_memory` holds, the process may grow by `MOST_BYTES` (on Linux; elsewhere only the bounds on sizes hold).
What is beyond a bound raises `jinja2.TemplateError` or `MemoryError`.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

if sys.platform == "linux":
    import resource

MOST_SECONDS = 10.0
MOST_BYTES = 256 << 20
MOST_SOURCE_CHARACTERS = 1 << 20
MOST_ARGUMENT = 1 << 16
MOST_NUMBER_BITS = 4096
MOST_ELEMENTS = 1 << 24


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """`template(source)` compiles; `start` sets the deadline of what is rendered next."""

    intercepted_binops = frozenset(("*", "**"))

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.globals.pop("lipsum")  # writes as much as it is asked for
        self.filters = {name: _bounded_filter(function) for name, function in self.filters.items()}
        self._deadline = 0.0

    def template(self, source: str) -> jinja2.Template:
        """The compiled template. Raises what Jinja raises for a source that does not parse."""
        if len(source) > MOST_SOURCE_CHARACTERS:
            raise jinja2.TemplateError(f"longer than {MOST_SOURCE_CHARACTERS} characters")
        return self.from_string(_Checkpoints().visit(self.parse(source)))

    def start(self) -> None:
        """What is rendered from now on has `MOST_SECONDS`."""
        self._deadline = time.monotonic() + MOST_SECONDS

    def checkpoint(self) -> str:
        """Called from the template itself, at each turn."""
        if time.monotonic() > self._deadline:
            raise jinja2.TemplateError(f"it runs for more than {MOST_SECONDS:g} seconds")
        return ""

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """A product or power, once it is known to be small."""
        if not _is_small(operator, left, right):
            raise jinja2.TemplateError(f"the result of {operator} is too large")
        return super().call_binop(context, operator, left, right)


@contextmanager
def bounded_memory() -> Iterator[None]:
    """On Linux, let the process grow by at most `MOST_BYTES` inside the block."""
    statm = Path("/proc/self/statm")  # its first figure: the pages of this process
    if sys.platform != "linux" or not statm.exists():
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_AS)
    most = int(statm.read_bytes().split()[0]) * resource.getpagesize() + MOST_BYTES
    if before[0] != resource.RLIM_INFINITY:
        most = min(most, before[0])
    resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


class _Checkpoints(NodeTransformer):
    """Puts a checkpoint at the start of every loop's and macro's body, and before every assignment."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        return self._inside(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        return self._inside(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:
        return self._inside(node)

    def visit_Assign(self, node: nodes.Assign) -> list[nodes.Node]:
        return [_checkpoint(node), node]

    def _inside(self, node: nodes.For | nodes.Macro | nodes.CallBlock) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, _checkpoint(node))
        return node


def _checkpoint(node: nodes.Node) -> nodes.ExprStmt:
    call = nodes.Call(nodes.EnvironmentAttribute("checkpoint"), [], [], None, None)
    return nodes.ExprStmt(call, lineno=node.lineno)


def _is_small(operator: str, left: Any, right: Any) -> bool:
    if isinstance(left, Sized) or isinstance(right, Sized):
        size, times = (len(left), right) if isinstance(left, Sized) else (len(right), left)
        return isinstance(times, int) and size * times <= MOST_ELEMENTS
    if not (isinstance(left, int) and isinstance(right, int)):
        return True
    bits = left.bit_length() * right if operator == "**" else left.bit_length() + right.bit_length()
    return bits <= MOST_NUMBER_BITS


def _bounded_filter(function: Callable[..., Any]) -> Callable[..., Any]:
    """The filter, refusing whole numbers beyond `MOST_ARGUMENT`: widths, counts, places after the point."""

    @functools.wraps(function)
    def bounded(*arguments: Any, **named: Any) -> Any:
        if any(isinstance(a, int) and a > MOST_ARGUMENT for a in (*arguments[1:], *named.values())):
            raise jinja2.TemplateError(f"an argument of a filter is above {MOST_ARGUMENT}")
        return function(*arguments, **named)

    return bounded
