"""How the queries and outputs of an attention are cut into items: what one site takes at a time.

    heads     [rows, heads, width]        an item: a block of rows of one head; its KV head is floor(head / group)
    members   [kv_heads, group, width]    an item: a block of the heads of one KV head, as the rows of one product

In `members` keys and values are moved once a block of heads, and as they depend on one item variable only, one reader
may bring them for the blocks of a KV head (`fuse_readers`). A single row of queries is needed: all heads stand at one
position.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pavane.ir.program import LV_ITEM_X, Items, Span, Window
from pavane.ir.quasi import Quasi, quasi
from pavane.passes.template import Axis, X, Y, extents, index_axis, window


class AttentionItems(msgspec.Struct, frozen=True):
    """Queries and outputs of one `shape`, moved by one `window`, whose rows are blocks along `rows`.

    `guard` are the spans of the window's other dimensions, `kv_guard` those of the windows of K and V; `variables` are
    the item variables as indices of the spec. `positions`: each row stands at a position of its own, one after the
    other; else all stand at the first.
    """

    rows: Axis
    items: Items
    shape: tuple[Quasi, ...]
    window: Window
    kv_head: Quasi
    guard: tuple[Span, ...]
    kv_guard: tuple[Span, ...]
    variables: Mapping[str, Quasi]
    positions: bool = True

    @property
    def row(self) -> Quasi:
        """The index in the spec that counts rows of a slot."""
        return quasi(f"i{self.window.row}")

    @property
    def column(self) -> Quasi:
        return quasi(f"i{len(self.shape) - 1}")


def by_heads(rows: Axis, heads: int, kv_heads: int, width: int) -> AttentionItems:
    """A block of rows of one head an item."""
    head, kv_head = index_axis(heads, LV_ITEM_X), X // (heads // kv_heads)
    return AttentionItems(
        rows=rows,
        items=Items(rows.count, head.count, rows.size, width),
        shape=extents(rows.limit, heads, width),
        window=window(rows.dim, head.dim, (0, width), row=0),
        kv_head=kv_head,
        guard=(head.span,),
        kv_guard=(Span(kv_head, 1, quasi(kv_heads)),),
        variables={LV_ITEM_X: quasi("i1")},
    )


def by_members(heads: int, kv_heads: int, width: int) -> AttentionItems:
    """The heads of a KV head are the rows of its items, in blocks that `tile` chooses."""
    group = heads // kv_heads
    members, kv_head = Axis(Y, 1, quasi(group), quasi(group)), index_axis(kv_heads, LV_ITEM_X)
    return AttentionItems(
        rows=members,
        items=Items(members.count, kv_head.count, members.size, width),
        shape=extents(kv_heads, group, width),
        window=window(kv_head.dim, members.dim, (0, width), row=1),
        kv_head=X,
        guard=(kv_head.span,),
        kv_guard=(kv_head.span,),
        variables={LV_ITEM_X: quasi("i0")},
        positions=False,
    )
