"""A certificate binds one program on one target; a schedule must be the program's own."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pavane.ir.digest import program_digest
from pavane.ir.program import Certificate, Do, ShapeSchedule, Turns
from pavane.ir.quasi import quasi
from pavane.passes.verify import verify
from pavane.reject import CertificateMismatch, NotProven, OrderRefused, OutsideFragment, ProgressRefused
from pavane.targets.load import load_target
from pavane.verify.check import check, check_part
from tests.building import site
from tests.checker.editing import carry, every, signed, with_fields, without
from tests.checker.two_sections import twice_on_host
from tests.examples import matmul_multicast

TOY = load_target("toy")


@pytest.fixture(scope="module")
def matmul():
    return verify(matmul_multicast(TOY), TOY)


def test_without_a_certificate(matmul):
    with pytest.raises(CertificateMismatch, match="no certificate"):
        check(replace(matmul, certificate=None), TOY)


def test_edited_after_it_was_certified(matmul):
    with pytest.raises(CertificateMismatch, match="the program is not the one"):
        check(carry("acc", address=0x5000)(matmul), TOY)


def test_for_another_target(matmul):
    other = replace(TOY, launch=replace(TOY.launch, cycles=1001))
    with pytest.raises(CertificateMismatch, match="for target"):
        check(matmul, other)


def test_with_another_meaning(matmul):
    forged = replace(matmul, graph_digest="0" * 64)
    forged = replace(forged, certificate=replace(matmul.certificate, program=program_digest(forged)))
    with pytest.raises(CertificateMismatch, match="the graph is not the one"):
        check(forged, TOY)


def _rescheduled(program, schedule) -> Certificate:
    return replace(program.certificate, schedules=(ShapeSchedule("matmul", schedule),))


def _edited(schedule, change):
    return tuple(
        change(Turns(i.var, i.extent, _edited(i.body, change)) if isinstance(i, Turns) else i) for i in schedule
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda i: Do(i.process, i.first + 1, i.last) if isinstance(i, Do) and i.last > i.first else i,
        lambda i: Do(5 - i.process, i.first, i.last) if isinstance(i, Do) else i,
        lambda i: Do(i.process, i.first, 1 << 40) if isinstance(i, Do) else i,
        lambda i: Do(-1, i.first, i.last) if isinstance(i, Do) else i,
        lambda i: Turns(i.var, quasi(7), i.body) if isinstance(i, Turns) else i,
        lambda i: Turns("LV_SUB_H", i.extent, i.body) if isinstance(i, Turns) else i,
        lambda i: Turns(i.var, i.extent, ()) if isinstance(i, Turns) else i,
        lambda i: Turns(i.var, i.extent, i.body + i.body) if isinstance(i, Turns) else i,
    ],
)
def test_a_schedule_that_is_not_the_programs(matmul, change):
    schedule = _edited(matmul.certificate.schedules[0].schedule, change)
    with pytest.raises(CertificateMismatch):
        check(replace(matmul, certificate=_rescheduled(matmul, schedule)), TOY)


def test_a_schedule_in_an_order_that_blocks(matmul):
    """The member waits for `valid` before the leader has posted it."""

    def reorder(schedule):
        if any(isinstance(i, Turns) for i in schedule):
            return tuple(Turns(i.var, i.extent, reorder(i.body)) if isinstance(i, Turns) else i for i in schedule)
        if not any(isinstance(i, Do) and i.process == 1 for i in schedule):
            return schedule
        late = [i for i in schedule if i.process == 0]
        return (*(i for i in schedule if i.process != 0), *late)

    schedule = reorder(matmul.certificate.schedules[0].schedule)
    with pytest.raises(ProgressRefused):
        check(replace(matmul, certificate=_rescheduled(matmul, schedule)), TOY)


def test_all_broken_obligations_are_named():
    """The first refusal is raised; its terms hold the others, with their codes."""
    broken = every(without("write", 2), with_fields("leadA", 4, to=site(0, quasi("SITE_Y"))))(matmul_multicast(TOY))
    with pytest.raises(OrderRefused) as caught:
        check(signed(broken, TOY), TOY)
    assert any(term.startswith("[multicast]") for term in caught.value.terms)


def test_a_part_is_no_program():
    """A section that reads SCRATCH passes as a part of a program and not as one."""
    host = load_target("host", 1)
    whole = twice_on_host(host)
    (*_, second) = whole.workers[0].body
    alone = replace(
        whole,
        instances=whole.instances[1:],
        workers=(replace(whole.workers[0], body=(replace(second, instance=0),)),),
        counters=(),
        tensors=tuple(replace(t, offset=-1) for t in whole.tensors),
    )
    part = signed(alone, host)
    assert check_part(part, host).program == "twice"
    with pytest.raises(NotProven):
        check(part, host)
    with pytest.raises(OutsideFragment):
        check_part(signed(whole, host), host)
