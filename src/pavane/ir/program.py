"""The spatial program: its whole grammar. Frozen, typed, serialisable; see docs/ir.md for what each word means.

Program   = name phase target digests symbols tensors shapes instances counters workers certificate?
Shape     = formals spec items numerics plan? groups | processes, fifos carries counters
Stage     = loops and steps (up to SYNCHRONIZED)       Process = the written order of one engine (from PERSISTENT)
Step      = Reserve Load Push Front Compute Pop Store Send Fence Post Wait Init
ComputeOp = Generic | MatmulTiles                      closed
Worker    = one engine of a rectangle of sites: Run(instance, process) | Wait | Post, forever
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from pavane.ir.canonical import one_number, share_defaults
from pavane.ir.expr import Expr, Index
from pavane.ir.quasi import Quasi
from pavane.ir.types import Contract, DType, Fill, Floats, Registers

FORMAT_VERSION = 1

Phase = Literal["TEMPLATE", "TILED", "FUSED", "PLACED", "SIZED", "SYNCHRONIZED", "PERSISTENT", "VERIFIED"]
PHASES: tuple[str, ...] = get_args(Phase)

LV_ITEM, LV_ITEM_X, LV_ITEM_Y = "LV_ITEM", "LV_ITEM_X", "LV_ITEM_Y"
LV_KBLOCK, LV_SUB_H, LV_SUB_W = "LV_KBLOCK", "LV_SUB_H", "LV_SUB_W"
LV_GEN_ROW, LV_GEN_COL, LV_GEN_K = "LV_GEN_ROW", "LV_GEN_COL", "LV_GEN_K"
LOOP_VARIABLES = (LV_ITEM, LV_ITEM_X, LV_ITEM_Y, LV_KBLOCK, LV_SUB_H, LV_SUB_W)
GENERIC_VARIABLES = (LV_GEN_ROW, LV_GEN_COL, LV_GEN_K)
SITE_X, SITE_Y = "SITE_X", "SITE_Y"

# Beside the chip; a copy in the local memory of every site; dealt to the sites' local memories in blocks.
Home = Literal["dram", "sites", "sharded"]


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of every part of the grammar."""


class Defaulted(Part, frozen=True):
    """Base of parts with a default of which a file, or Python, can make a copy: the copy becomes the default."""

    def __post_init__(self) -> None:
        share_defaults(self)


# --- windows and references -----------------------------------------------------------------------------------------


class Span(Part, frozen=True):
    """The index range [start, min(start + size, limit)), empty when start >= limit.

    Length: clamp(limit - start, 0, size).
    """

    start: Quasi
    size: int
    limit: Quasi


class Window(Part, frozen=True):
    """A box of a tensor: per dimension a start and a constant size.

    It is clipped at the tensor's extent; that is derived and never stated. The last dimension gives a slot's columns,
    dimension `row` its rows (-1: the slot has one row). Every other dimension has size 1.
    """

    start: tuple[Index, ...]
    size: tuple[int, ...]
    row: int = -1


class Rect(Part, frozen=True):
    """Sites x0 <= x < x1, y0 <= y < y1 of the program's grid; in a step, quasi-affine in SITE_X, SITE_Y of the doer."""

    x0: Quasi
    x1: Quasi
    y0: Quasi
    y1: Quasi


class Ref(Defaulted, frozen=True):
    """A place in a FIFO slot (reserved, or in front) or in a carry: the operand's origin is at (row, col) of it."""

    name: str
    row: Quasi = Quasi()
    col: Quasi = Quasi()


# --- compute --------------------------------------------------------------------------------------------------------


class Tree(Part, frozen=True):
    """The order of a contraction's sum. Lane l adds the terms k = l (mod lanes) of an atom in ascending k.

    lanes = 1: every term is added to the accumulator in ascending k, over the whole contraction (atom is 0).
    lanes > 1: the lanes' sums of each atom of `atom` terms (0: the whole contraction) are added pairwise (l and
    l + lanes/2, then halving), and the result is added to the accumulator; atoms in ascending order.
    `fused`: multiply and add round once.
    q8_0 x q8_0: lane l takes, of each block, the exact integer sum of its 32/lanes consecutive products (from
    l*32/lanes on), times the product of the two scales; blocks in ascending order.
    """

    atom: int = 0
    lanes: int = 1
    fused: bool = False


class Generic(Part, frozen=True, tag="generic"):
    """dst[r, c] = expr for r in rows, c in cols: LV_GEN_ROW counts 0 <= r < len(rows), LV_GEN_COL likewise.

    Does nothing when a span of `guard` is empty (a ghost item whose index is neither row nor column: a head).
    Writes at dst.row + r, dst.col + c. An operand's `At` index is absolute in its slot or carry. An operand that is
    also the destination is read at the same (r, c) only.
    """

    dst: Ref
    expr: Expr
    rows: Span
    cols: Span
    guard: tuple[Span, ...] = ()


class MatmulTiles(Part, frozen=True, tag="matmul"):
    """dst[r, c] += SUM(j < len(k)) a[a.row + r, a.col + j] * b[b.row + j, b.col + c].

    `transposed`: b[b.row + c, b.col + j] is multiplied instead. Does nothing when a span of `guard` is empty.
    """

    dst: Ref
    a: Ref
    b: Ref
    transposed: bool
    rows: Span
    cols: Span
    k: Span
    tree: Tree
    guard: tuple[Span, ...] = ()


ComputeOp = Generic | MatmulTiles


# --- steps ----------------------------------------------------------------------------------------------------------


class Reserve(Part, frozen=True, tag="reserve"):
    """Wait for a free slot of the FIFO and own it."""

    fifo: str


class Load(Defaulted, frozen=True, tag="load"):
    """Start filling the reserved slot, from its row `row` on, with a window of a tensor.

    Ends at a Fence. Alias: binds, moves nothing.
    """

    fifo: str
    tensor: str
    window: Window
    row: Quasi = Quasi()


class Push(Part, frozen=True, tag="push"):
    """Hand the reserved slot over."""

    fifo: str


class Front(Part, frozen=True, tag="front"):
    """Wait for the oldest slot handed over and hold it."""

    fifo: str


class Compute(Part, frozen=True, tag="compute"):
    """Do one op; its result is there when the next step begins."""

    op: ComputeOp


class Pop(Part, frozen=True, tag="pop"):
    """Give the held slot back."""

    fifo: str


class Store(Part, frozen=True, tag="store"):
    """Start writing the slot in front of `fifo` to a window of a tensor. Ends at a Fence."""

    fifo: str
    tensor: str
    window: Window


class Send(Part, frozen=True, tag="send"):
    """Start copying the reserved slot of `fifo` into the reserved slot of the same FIFO on every site of `to`.

    Ends at a Fence.
    """

    fifo: str
    to: Rect


class Fence(Part, frozen=True, tag="fence"):
    """Wait until every load, store and send of this process has completed."""


class Post(Part, frozen=True, tag="post"):
    """Add n to the counter on every site of `to`, after everything this process did before."""

    counter: str
    to: Rect
    n: int = 1


class Wait(Part, frozen=True, tag="wait"):
    """Consume n further posts of this site's counter."""

    counter: str
    n: int = 1


class Init(Part, frozen=True, tag="init"):
    """Set every element of a carry to its initial value."""

    carry: str


Step = Reserve | Load | Push | Front | Compute | Pop | Store | Send | Fence | Post | Wait | Init


class Loop(Part, frozen=True, tag="loop"):
    """for 0 <= var < extent: body."""

    var: str
    extent: Quasi
    body: tuple[Node, ...]


Node = Loop | Step


# --- a section's shape ----------------------------------------------------------------------------------------------


class Formal(Defaulted, frozen=True):
    """A tensor as a section sees it.

    Row-major; extents quasi-affine in symbols. Bound to a tensor of the same home (and `shard_bytes`,
    `interleave_bytes`), or to a view of one (Binding).
    """

    name: str
    shape: tuple[Quasi, ...]
    dtype: DType
    role: Literal["IN", "OUT", "STATE"]
    fill: Fill = Floats()
    home: Home = "dram"
    shard_bytes: int = 0
    interleave_bytes: int = 0


class Spec(Part, frozen=True):
    """out[origin + i] = expr(i0, i1, ...) for 0 <= i < extents; no other element of `out` changes."""

    out: str
    origin: tuple[Quasi, ...]
    extents: tuple[Quasi, ...]
    expr: Expr


class Stage(Defaulted, frozen=True):
    """What one engine does for a section's items, before it is known what else the engine does."""

    name: str
    engine: str
    body: tuple[Node, ...]
    registers: Registers = "HALF"


class Group(Defaulted, frozen=True):
    """A rectangle of sites (None before `place`), how it takes items, and the stages that each of its sites runs."""

    name: str
    stages: tuple[Stage, ...]
    rect: Rect | None = None
    rule: Literal["CYCLIC", "CONTIGUOUS"] = "CYCLIC"


class Process(Defaulted, frozen=True):
    """The resident process of one engine on each site of a rectangle: the steps of its stages in a written order.

    SITE_X, SITE_Y are a site's coordinates inside `rect`.
    """

    name: str
    rect: Rect
    engine: str
    body: tuple[Node, ...]
    registers: Registers = "HALF"


class Fifo(Part, frozen=True):
    """A bounded queue of rows x cols slots between two stages of a site. `depth` 0 and `address` -1: not chosen yet."""

    name: str
    kind: Literal["LOCAL", "MULTICAST_ROW", "MULTICAST_COLUMN", "ALIAS"]
    rows: int
    cols: int
    dtype: DType
    depth: int = 0
    address: int = -1


class Carry(Defaulted, frozen=True):
    """A buffer that one stage owns, alive across turns of a loop.

    `cut` marks one that legalisation put in and fuse_generic may remove.
    """

    name: str
    rows: int
    cols: int
    dtype: DType
    initial: float = 0.0
    cut: bool = False
    address: int = -1

    def __post_init__(self) -> None:
        one_number(self, "initial")
        share_defaults(self)


class Counter(Defaulted, frozen=True):
    """A semaphore on every site of `rect`, of `bits` bits; one process of `engine` a site waits for it.

    `ahead`: what it starts at. `id`: its number on the chip, -1 when not chosen yet.
    """

    name: str
    rect: Rect
    engine: str
    kind: Literal["MONOTONE", "CREDIT"] = "MONOTONE"
    bits: int = 32
    ahead: int = 0
    id: int = -1


class Numerics(Defaulted, frozen=True):
    """How a section computes, fixed at TEMPLATE. `exact`: every output equals the mathematical result, to the bit.

    `operands` gives, per formal that a MatmulTiles reads, the dtype in which the engine takes it (rounding included).
    """

    contract: Contract = "FLOAT"
    accumulator: DType = "f32"
    operands: tuple[tuple[str, DType], ...] = ()
    exact: bool = False
    terms: tuple[str, ...] = ()


class Plan(Part, frozen=True):
    """What `tile` chose: block extents in elements, predicted cycles of one worker, and the best plan that it beat."""

    rows: int
    cols: int
    k: int
    cycles: int
    runner_up: tuple[int, int, int] | None = None
    runner_up_cycles: int = 0
    bottleneck: str = ""
    considered: int = 0


class Items(Part, frozen=True):
    """The work grid: how many items in y and x, and the elements of the output that one item covers (rows, cols)."""

    y: Quasi
    x: Quasi
    rows: int
    cols: int


class Join(Part, frozen=True):
    """A comparison that a pass made: what was taken, what not, both costs in cycles."""

    what: str
    taken: str
    cycles: int
    other: str
    other_cycles: int


class Shape(Part, frozen=True):
    """A section with its names forgotten: what is compiled, verified and lowered once.

    `sites`: where the section stands when that is no rectangle. Its rectangles are then of a line: site (n, 0) of them
    is sites[n] of the program's grid.
    """

    name: str
    formals: tuple[Formal, ...]
    spec: tuple[Spec, ...]
    items: Items
    numerics: Numerics
    groups: tuple[Group, ...] = ()
    processes: tuple[Process, ...] = ()
    fifos: tuple[Fifo, ...] = ()
    carries: tuple[Carry, ...] = ()
    counters: tuple[Counter, ...] = ()
    plan: Plan | None = None
    joins: tuple[Join, ...] = ()
    sites: tuple[tuple[int, int], ...] = ()


# --- the program ----------------------------------------------------------------------------------------------------


class Symbol(Part, frozen=True):
    """A runtime scalar in [lo, hi]; `expected` is for cost only."""

    name: str
    lo: int
    hi: int
    expected: int


class Transition(Part, frozen=True):
    """An epoch writes exactly rows [row, row + rows) of a STATE tensor's first dimension and preserves the rest."""

    row: Quasi
    rows: Quasi


class Tensor(Defaulted, frozen=True):
    """What sections hand each other. Row-major. `offset` (-1: not laid out): of SCRATCH beside the chip the place in
    its arena, of what lies on the sites or is sharded the local address, the same on each; nothing else has one.
    `shard_bytes`: of what is sharded, the bytes of a block (`ir.shards`). `interleave_bytes`: of a WEIGHT beside the
    chip, how many neighbouring bytes lie in one channel before the next one's turn (0: as the chip does it).
    """

    name: str
    shape: tuple[Quasi, ...]
    dtype: DType
    role: Literal["INPUT", "WEIGHT", "STATE", "SCRATCH", "OUTPUT"]
    fill: Fill = Floats()
    transition: Transition | None = None
    home: Home = "dram"
    offset: int = -1
    shard_bytes: int = 0
    interleave_bytes: int = 0


class Binding(Part, frozen=True):
    """A formal is the tensor, or a view: a reshape of it, or a prefix of its first dimension."""

    formal: str
    tensor: str


class Instance(Part, frozen=True):
    """A section's place in a program. Neighbours of one `wave` run at once (-1: by itself)."""

    shape: str
    bindings: tuple[Binding, ...]
    name: str = ""
    wave: int = -1


class Run(Part, frozen=True, tag="run"):
    """Do one process of an instance's shape, once."""

    instance: int
    process: str


Turn = Run | Wait | Post


class Worker(Part, frozen=True):
    """One resident process: an engine on every site of a rectangle, and all that it does in an epoch."""

    name: str
    rect: Rect
    engine: str
    body: tuple[Turn, ...]


# --- the certificate ------------------------------------------------------------------------------------------------


class Do(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True, tag=True):
    """Steps first..last (numbered in the process's written order, leaves only) of a process of the shape."""

    process: int
    first: int
    last: int


class Turns(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True, tag=True):
    """A loop of the reference schedule."""

    var: str
    extent: Quasi
    body: tuple[Do | Turns, ...]


class ShapeSchedule(Part, frozen=True):
    """One sequential order of every step of every process of a shape: the evidence for progress."""

    shape: str
    schedule: tuple[Do | Turns, ...]


class Certificate(Part, frozen=True):
    """Evidence that the checker can check by itself.

    `program` is the digest of the program without certificate, at PERSISTENT.
    """

    program: str
    target: str
    schedules: tuple[ShapeSchedule, ...]


class Program(Part, frozen=True):
    """What one launch does: sections in the order of `instances`, over `tensors`, for every value of `symbols`.

    The two digests are SHA-256 in hexadecimal: of the chip's descriptor, and of what the program means (`ir/digest`).
    """

    name: str
    phase: Phase
    target: str
    target_digest: str
    graph_digest: str
    symbols: tuple[Symbol, ...]
    tensors: tuple[Tensor, ...]
    shapes: tuple[Shape, ...]
    instances: tuple[Instance, ...]
    counters: tuple[Counter, ...] = ()
    workers: tuple[Worker, ...] = ()
    certificate: Certificate | None = None
    version: int = FORMAT_VERSION
