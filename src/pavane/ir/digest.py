"""Canonical bytes and their SHA-256: a program's name is its digest."""

from __future__ import annotations

import hashlib

import msgspec
from msgspec.structs import replace

from pavane.ir.program import Formal, Program, Shape

_ENCODER = msgspec.json.Encoder(order="deterministic")


def canonical_bytes(value: object) -> bytes:
    """The one JSON encoding of a value of the grammar."""
    return _ENCODER.encode(value)


def digest(value: object) -> str:
    """SHA-256 of the canonical bytes, in hexadecimal."""
    return hashlib.sha256(canonical_bytes(value)).hexdigest()


def program_digest(program: Program) -> str:
    """What a certificate binds: the program at PERSISTENT, without the certificate."""
    return digest(replace(program, phase="PERSISTENT", certificate=None))


def graph_digest(program: Program) -> str:
    """What the program must mean: tensors without their place, and every section's spec with its bindings, in order.

    No pass changes any of it, so the digest taken at TEMPLATE is the digest of the finished program.
    """
    meaning = {shape.name: digest([_anywhere(shape.formals), shape.spec]) for shape in program.shapes}
    tensors = [(t.name, t.shape, t.dtype, t.role, t.fill, t.transition) for t in program.tensors]
    sections = [(meaning[i.shape], i.bindings) for i in program.instances]
    return digest([program.symbols, tensors, sections])


def _anywhere(formals: tuple[Formal, ...]) -> tuple[Formal, ...]:
    """The formals, wherever they lie."""
    return tuple(replace(f, home="dram", shard_bytes=0, interleave_bytes=0) for f in formals)


def shape_digest(shape: Shape) -> str:
    """The identity of a section shape: everything but its name."""
    return digest(replace(shape, name=""))
