"""The program as bytes: canonical, stable, and nothing unknown gets in."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from pavane.ir.digest import canonical_bytes, digest, graph_digest, program_digest, shape_digest
from pavane.ir.expr import Fn, at
from pavane.ir.program import Certificate, Program
from pavane.ir.walk import leaves, span_bounds, symbol_domain, window_guard, window_spans
from pavane.targets.load import load_target
from tests import examples

TOY, HOST = load_target("toy"), load_target("host", cores=2)
PROGRAMS = (examples.matmul_multicast(TOY), examples.norm_product_host(HOST), examples.attention_host(HOST))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_a_program_survives_its_bytes(program):
    data = canonical_bytes(program)
    again = msgspec.json.decode(data, type=Program)
    assert again == program
    assert canonical_bytes(again) == data


def test_unknown_fields_are_refused():
    data = canonical_bytes(PROGRAMS[0]).replace(b'"name":"matmul"', b'"name":"matmul","colour":"red"', 1)
    with pytest.raises(msgspec.ValidationError, match="colour"):
        msgspec.json.decode(data, type=Program)


def test_a_certificate_does_not_change_what_it_certifies():
    program = PROGRAMS[0]
    certified = replace(program, phase="VERIFIED", certificate=Certificate("x", "y", ()))
    assert program_digest(certified) == program_digest(program) == digest(program)


def test_the_meaning_is_not_the_choreography():
    program = PROGRAMS[0]
    deeper = tuple(replace(fifo, depth=3) for fifo in program.shapes[0].fifos)
    other = replace(program, shapes=(replace(program.shapes[0], fifos=deeper),))
    assert graph_digest(other) == graph_digest(program) == program.graph_digest
    assert program_digest(other) != program_digest(program)
    spec = replace(program.shapes[0].spec[0], expr=at("A", "i0", "i1"))
    assert graph_digest(replace(program, shapes=(replace(program.shapes[0], spec=(spec,)),))) != graph_digest(program)


def test_a_shape_is_known_by_everything_but_its_name():
    shape = PROGRAMS[0].shapes[0]
    assert shape_digest(replace(shape, name="other")) == shape_digest(shape)
    assert shape_digest(replace(shape, carries=())) != shape_digest(shape)


def test_operators_take_their_number_of_arguments():
    with pytest.raises(ValueError, match="add takes 2"):
        Fn("add", (at("A", 0),))


def test_windows_give_the_spans_of_a_slot():
    program = PROGRAMS[2]
    (process,) = program.shapes[0].processes
    nest, load = next((n, s) for n, s in leaves(process.body) if getattr(s, "tensor", "") == "K")
    shape = program.shapes[0].formals[1].shape
    rows, cols = window_spans(load.window, shape)
    (guard,) = window_guard(load.window, shape)
    domain = symbol_domain(program)
    for loop in nest:
        domain = domain.with_loop(loop.var, loop.extent)
    assert span_bounds(rows, domain) == (1, 32)
    assert span_bounds(cols, domain) == (16, 16)
    assert (str(guard.start), guard.size, str(guard.limit)) == ("floor(2*LV_ITEM_X + SITE_X, 3)", 1, "1")
