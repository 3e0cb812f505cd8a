"""Program in, program out: one file a pass, named like its function; `pavane.pipeline.PASS_ORDER` is their order.

Re-exported beside the passes: the nine loop variables.
"""

from pavane.ir.program import (
    LV_GEN_COL,
    LV_GEN_K,
    LV_GEN_ROW,
    LV_ITEM,
    LV_ITEM_X,
    LV_ITEM_Y,
    LV_KBLOCK,
    LV_SUB_H,
    LV_SUB_W,
)
from pavane.passes.fuse_generic import fuse_generic
from pavane.passes.fuse_readers import fuse_readers
from pavane.passes.persist import persist
from pavane.passes.place import place
from pavane.passes.section_shape import section_shape
from pavane.passes.size_buffers import size_buffers
from pavane.passes.synthesize_handshakes import synthesize_handshakes
from pavane.passes.tile import tile

__all__ = [
    "LV_GEN_COL",
    "LV_GEN_K",
    "LV_GEN_ROW",
    "LV_ITEM",
    "LV_ITEM_X",
    "LV_ITEM_Y",
    "LV_KBLOCK",
    "LV_SUB_H",
    "LV_SUB_W",
    "fuse_generic",
    "fuse_readers",
    "persist",
    "place",
    "section_shape",
    "size_buffers",
    "synthesize_handshakes",
    "tile",
]
