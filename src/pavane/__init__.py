"""Pavane: a spatial compiler. One program for one chip, proven before it runs.

    import pavane as pv
    program = pv.compile(pv.gguf("model.gguf").decode(), target="host")

The names below are the public door. Heavy parts load on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pavane.api import Gguf, Source, as_target, check, compile, decoder, gguf, graph, op, show, simulate
    from pavane.ir.program import Program
    from pavane.ir.types import Const, Floats, Ints
    from pavane.reject import SpatialReject
    from pavane.tensor_graph.graph import Graph

_HOMES = {
    "Const": "pavane.ir.types",
    "Floats": "pavane.ir.types",
    "Gguf": "pavane.api",
    "Graph": "pavane.tensor_graph.graph",
    "Ints": "pavane.ir.types",
    "Program": "pavane.ir.program",
    "Source": "pavane.api",
    "SpatialReject": "pavane.reject",
    "as_target": "pavane.api",
    "check": "pavane.api",
    "compile": "pavane.api",
    "decoder": "pavane.api",
    "gguf": "pavane.api",
    "graph": "pavane.api",
    "op": "pavane.api",
    "show": "pavane.api",
    "simulate": "pavane.api",
}

__all__ = [
    "Const",
    "Floats",
    "Gguf",
    "Graph",
    "Ints",
    "Program",
    "Source",
    "SpatialReject",
    "as_target",
    "check",
    "compile",
    "decoder",
    "gguf",
    "graph",
    "op",
    "show",
    "simulate",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'pavane' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
