"""Programs that are right are accepted, with a fact for every obligation."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pavane.passes.verify import verify
from pavane.targets.load import load_target
from pavane.verify.check import OBLIGATIONS, check
from tests.checker.editing import accepted
from tests.checker.two_sections import twice_on_host, twice_on_toy
from tests.examples import attention_host, matmul_multicast, norm_product_host

TOY = load_target("toy")
SHAPES = [(1, 1, 1), (33, 65, 31), (100, 70, 150), (128, 64, 64), (7, 576, 4915), (4001, 7003, 3005)]


@pytest.mark.parametrize(("m", "k", "n"), SHAPES)
def test_a_multicast_matmul(m, k, n):
    report = accepted(matmul_multicast(TOY, m, k, n, -1, 1), TOY)
    assert {fact.obligation for fact in report.facts} == set(OBLIGATIONS)


@pytest.mark.parametrize("cores", [1, 2, 3])
@pytest.mark.parametrize("contract", ["FLOAT", "INT8_ACTIVATIONS"])
@pytest.mark.parametrize(("width", "outputs", "block"), [(64, 96, 32), (96, 100, 32), (576, 49152, 64), (32, 1, 32)])
def test_a_norm_and_product(cores, contract, width, outputs, block):
    host = load_target("host", cores)
    assert accepted(norm_product_host(host, width, outputs, block, contract), host).program == "norm_product"


@pytest.mark.parametrize("cores", [1, 2, 3])
@pytest.mark.parametrize(
    ("heads", "kv", "width", "context"), [(3, 1, 16, 64), (9, 3, 64, 256), (8, 2, 24, 1000), (4, 4, 8, 33)]
)
def test_attention(cores, heads, kv, width, context):
    host = load_target("host", cores)
    assert accepted(attention_host(host, heads, kv, width, context), host).program == "attention"


@pytest.mark.parametrize("cores", [1, 2, 3])
def test_two_sections_on_a_host(cores):
    host = load_target("host", cores)
    report = accepted(twice_on_host(host), host)
    assert any("1 boundaries" in fact.what for fact in report.facts)


@pytest.mark.parametrize("second_address", [0, 4096, 32768])
def test_two_sections_on_the_toy(second_address):
    accepted(twice_on_toy(TOY, second_address=second_address), TOY)


def test_verify_attaches_a_certificate_that_the_checker_accepts():
    program = verify(matmul_multicast(TOY), TOY)
    assert program.phase == "VERIFIED"
    assert check(program, TOY).program == "matmul"


def test_one_core_needs_no_boundary():
    host = load_target("host", 1)
    program = twice_on_host(host)
    worker = program.workers[0]
    bare = replace(worker, body=(worker.body[0], worker.body[3]))
    accepted(replace(program, workers=(bare,), counters=()), host)


def test_an_extent_may_be_symbolic():
    """The attention example has loops over ceil((pos + rows) / 32) turns."""
    host = load_target("host", 1)
    program = attention_host(host)
    assert not program.shapes[0].formals[1].shape[0].is_const
    accepted(program, host)


def test_compute_needs_no_start_of_its_own_when_it_touches_nothing_before_its_first_slot():
    """Its first slot comes from a reader that has waited."""
    program = twice_on_toy(TOY, second_address=4096)
    workers = []
    for worker in program.workers:
        kept = tuple(t for t in worker.body if getattr(t, "counter", "") != "start.matrix")
        workers.append(replace(worker, body=kept))
    counters = tuple(c for c in program.counters if c.name != "start.matrix")
    accepted(replace(program, workers=tuple(workers), counters=counters), TOY)
