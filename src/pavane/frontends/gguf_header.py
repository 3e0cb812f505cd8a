"""The header of a GGUF (version 2 and 3, little-endian): where each metadata value and each tensor lies.

`read_header(cursor)` walks it once and believes no count and no offset before it has checked it against the size of the
file, so its work and memory are bounded by that size. Values are not decoded; the strings of big arrays (a vocabulary,
its merges) are stepped over.

Refusals: `FileReject` with the byte where the file stops being a GGUF (truncated, wrong magic, wrong version, counts
that the file cannot hold, tensors outside it or over each other); `ModelReject` for a tensor whose ggml type has no
dequantiser. Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import mmap
import struct
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType

from pavane.reject import FileReject, ModelReject

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_ALIGNMENT = 1 << 16
MAX_KEY_BYTES = 65535
MAX_TENSOR_NAME_BYTES = 256
MAX_DIMENSIONS = 4
MIN_KEY_VALUE_BYTES = 8 + 1 + 4 + 1
MIN_TENSOR_INFO_BYTES = 8 + 1 + 4 + 8 + 4 + 8

SCALAR_CODES = {
    GGUFValueType.UINT8: "B",
    GGUFValueType.INT8: "b",
    GGUFValueType.UINT16: "H",
    GGUFValueType.INT16: "h",
    GGUFValueType.UINT32: "I",
    GGUFValueType.INT32: "i",
    GGUFValueType.FLOAT32: "f",
    GGUFValueType.BOOL: "?",
    GGUFValueType.UINT64: "Q",
    GGUFValueType.INT64: "q",
    GGUFValueType.FLOAT64: "d",
}
# The types that `gguf.quants` makes floats of; a type that it only knows the size of is not one.
DEQUANTISED = (
    "BF16", "F16", "F32", "IQ1_M", "IQ1_S", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ3_S", "IQ3_XXS", "IQ4_NL", "IQ4_XS",
    "MXFP4", "NVFP4", "Q2_K", "Q3_K", "Q4_0", "Q4_1", "Q4_K", "Q5_0", "Q5_1", "Q5_K", "Q6_K", "Q8_0", "TQ1_0", "TQ2_0",
)  # fmt: skip
DOWNLOAD_AGAIN = "download or convert the file again"


class TensorEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor: `shape` is row-major (last dimension contiguous), `offset` counts bytes from the file's start."""

    name: str
    shape: tuple[int, ...]
    ggml_type: str
    offset: int
    nbytes: int

    @property
    def rows(self) -> int:
        return math.prod(self.shape[:-1])


class KeyValue(msgspec.Struct, frozen=True, kw_only=True):
    """Where a metadata value lies: `element` and `count` are set for arrays only."""

    kind: GGUFValueType
    offset: int
    element: GGUFValueType | None = None
    count: int = 0


class Header(msgspec.Struct, frozen=True):
    """Everything the header says, unread values by place. `tensors` keep the file's order."""

    version: int
    entries: dict[str, KeyValue]
    alignment: int
    tensors: dict[str, TensorEntry]


class Cursor:
    """A position in the mapped file; every step is checked against its end."""

    def __init__(self, path: Path, view: mmap.mmap, position: int = 0) -> None:
        self.path = path
        self.view = view
        self.position = position
        self.size = len(view)

    @property
    def left(self) -> int:
        return self.size - self.position

    def step(self, nbytes: int, what: str) -> int:
        """Advance by `nbytes` and return where they start."""
        start = self.position
        if nbytes > self.size - start:
            raise FileReject(
                f"the GGUF is truncated inside {what}",
                where=f"{self.path}, byte {start}",
                needed=f"{nbytes} more bytes",
                available=f"{self.size - start} bytes",
                remedy=DOWNLOAD_AGAIN,
            )
        self.position = start + nbytes
        return start

    def number(self, code: str, what: str) -> Any:
        """One little-endian number of a `struct` code."""
        return struct.unpack_from("<" + code, self.view, self.step(struct.calcsize("<" + code), what))[0]

    def string(self, what: str, limit: int | None = None) -> str:
        """A length of 64 bits and as many bytes of UTF-8, at most `limit`."""
        length = self.number("Q", what)
        if limit is not None and length > limit:
            self.refuse(f"{what} is {length} bytes long", needed=f"at most {limit} bytes")
        start = self.step(length, what)
        try:
            return self.view[start : start + length].decode("utf-8")
        except UnicodeDecodeError:
            self.refuse(f"{what} is not UTF-8 text")

    def strings(self, count: int, what: str) -> list[str]:
        """As many strings, one after the other."""
        first = self.position
        self.skip_strings(count, what)
        data = self.view[first : self.position]
        unpack, found, position = struct.Struct("<Q").unpack_from, [], 0
        for _ in range(count):
            start = position + 8
            position = start + unpack(data, position)[0]
            try:
                found.append(data[start:position].decode("utf-8"))
            except UnicodeDecodeError:
                self.refuse(f"{what} is not UTF-8 text")
        return found

    def value(self, kind: GGUFValueType, what: str) -> Any:
        return self.string(what) if kind == GGUFValueType.STRING else self.number(SCALAR_CODES[kind], what)

    def kind(self, what: str) -> GGUFValueType:
        number = self.number("I", what)
        if number not in GGUFValueType._value2member_map_:
            self.refuse(f"{what} has the unknown value type {number}", needed="a type 0 to 12")
        return GGUFValueType(number)

    def skip_strings(self, count: int, what: str) -> None:
        """Step over as many strings without decoding them."""
        unpack, view, size, position = struct.Struct("<Q").unpack_from, self.view, self.size, self.position
        for _ in range(count):
            if position + 8 > size:
                break
            position += 8 + unpack(view, position)[0]
        else:
            if position <= size:
                self.position = position
                return
        self.step(self.left + 1, what)

    def refuse(self, what: str, *, needed: str = "", available: str = "") -> NoReturn:
        """Raise FileReject, naming the byte where the cursor stands."""
        raise FileReject(
            what,
            where=f"{self.path}, byte {self.position}",
            needed=needed,
            available=available,
            remedy=DOWNLOAD_AGAIN,
        )


def shown(value: object, characters: int = 60) -> str:
    """A value of the file (or what was said of it) as messages spell it: on one line, printable, not too long."""
    text = repr(value[:characters] if isinstance(value, str | list | np.ndarray) else value).replace("\n", " ")
    return text if len(text) <= characters else text[: characters - 3] + "..."


def read_header(cursor: Cursor) -> Header:
    """Walk the header from the file's first byte. Raises FileReject or ModelReject."""
    version, tensor_count, key_count = _preamble(cursor)
    entries = _key_values(cursor, key_count)
    alignment = _alignment(cursor, entries.get("general.alignment"))
    return Header(version, entries, alignment, _tensor_table(cursor, tensor_count, alignment))


def _preamble(cursor: Cursor) -> tuple[int, int, int]:
    magic = cursor.view[cursor.step(4, "the magic") : 4]
    if magic != MAGIC:
        cursor.refuse(f"wrong magic {magic!r}: not a GGUF file", needed=repr(MAGIC))
    version = cursor.number("I", "the version")
    if version not in VERSIONS:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS
        found = "this GGUF is big-endian" if swapped else f"GGUF version {version} is not known"
        cursor.refuse(found, needed="a little-endian GGUF of version 2 or 3")
    tensor_count = cursor.number("Q", "the tensor count")
    key_count = cursor.number("Q", "the metadata count")
    _bound_count(cursor, "metadata entries", key_count, MIN_KEY_VALUE_BYTES)
    _bound_count(cursor, "tensors", tensor_count, MIN_TENSOR_INFO_BYTES)
    return version, tensor_count, key_count


def _bound_count(cursor: Cursor, what: str, count: int, each_bytes: int) -> None:
    if count * each_bytes > cursor.left:
        cursor.refuse(
            f"the header counts {count} {what}, more than the file can hold",
            needed=f"{count * each_bytes} bytes at least",
            available=f"{cursor.left} bytes",
        )


def _key_values(cursor: Cursor, count: int) -> dict[str, KeyValue]:
    entries: dict[str, KeyValue] = {}
    for index in range(count):
        key = cursor.string(f"metadata key {index}", MAX_KEY_BYTES)
        if key in entries:
            cursor.refuse(f"metadata key {key!r} stands twice")
        entries[key] = _key_value(cursor, f"metadata {key!r}")
    return entries


def _key_value(cursor: Cursor, what: str) -> KeyValue:
    kind = cursor.kind(what)
    if kind != GGUFValueType.ARRAY:
        entry = KeyValue(kind=kind, offset=cursor.position)
        cursor.value(kind, what)
        return entry
    element = cursor.kind(what)
    if element == GGUFValueType.ARRAY:
        cursor.refuse(f"{what} is an array of arrays", needed="an array of scalars or strings")
    count = cursor.number("Q", what)
    width = 8 if element == GGUFValueType.STRING else struct.calcsize("<" + SCALAR_CODES[element])
    _bound_count(cursor, f"elements of {what}", count, width)
    entry = KeyValue(kind=kind, offset=cursor.position, element=element, count=count)
    if element == GGUFValueType.STRING:
        cursor.skip_strings(count, what)
    else:
        cursor.step(count * width, what)
    return entry


def _alignment(cursor: Cursor, entry: KeyValue | None) -> int:
    if entry is None:
        return DEFAULT_ALIGNMENT
    is_integer = entry.kind == GGUFValueType.UINT32
    alignment = Cursor(cursor.path, cursor.view, entry.offset).number("I", "general.alignment") if is_integer else 0
    if not 0 < alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
        needed = f"a power of two up to {MAX_ALIGNMENT}, as uint32"
        cursor.refuse(f"general.alignment is {alignment if is_integer else entry.kind.name}", needed=needed)
    return alignment


def _tensor_table(cursor: Cursor, count: int, alignment: int) -> dict[str, TensorEntry]:
    entries: dict[str, TensorEntry] = {}
    for index in range(count):
        entry = _tensor_info(cursor, f"tensor info {index}", alignment)
        if entry.name in entries:
            cursor.refuse(f"tensor {entry.name!r} stands twice")
        entries[entry.name] = entry
    data_start = -(-cursor.position // alignment) * alignment
    placed = {name: msgspec.structs.replace(entry, offset=entry.offset + data_start) for name, entry in entries.items()}
    _refuse_outside_or_overlapping(cursor, list(placed.values()))
    return placed


def _tensor_info(cursor: Cursor, what: str, alignment: int) -> TensorEntry:
    name = cursor.string(what, MAX_TENSOR_NAME_BYTES)
    what = f"tensor {name!r}"
    dimensions = cursor.number("I", what)
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        cursor.refuse(f"{what} has {dimensions} dimensions", needed=f"1 to {MAX_DIMENSIONS}")
    shape = tuple(cursor.number("Q", what) for _ in range(dimensions))[::-1]
    kind = _ggml_type(cursor, what, cursor.number("I", what))
    offset = cursor.number("Q", what)
    block, block_bytes = GGML_QUANT_SIZES[kind]
    if min(shape) < 1 or shape[-1] % block:
        needed = f"extents above 0, the last a multiple of {block} ({kind.name})"
        cursor.refuse(f"{what} has shape {list(shape)}", needed=needed)
    if offset % alignment:
        cursor.refuse(f"{what} starts at offset {offset}", needed=f"a multiple of the alignment, {alignment}")
    nbytes = math.prod(shape) // block * block_bytes
    return TensorEntry(name=name, shape=shape, ggml_type=kind.name, offset=offset, nbytes=nbytes)


def _ggml_type(cursor: Cursor, what: str, number: int) -> GGMLQuantizationType:
    known = GGMLQuantizationType._value2member_map_.get(number)
    if known is None or known not in GGML_QUANT_SIZES or known.name not in DEQUANTISED:
        raise ModelReject(
            f"{what} is stored as ggml type {known.name if known else number}, which has no dequantiser",
            where=str(cursor.path),
            needed="one of " + ", ".join(DEQUANTISED),
            remedy="convert the model with another quantisation, for instance Q8_0",
        )
    return known


def _refuse_outside_or_overlapping(cursor: Cursor, entries: list[TensorEntry]) -> None:
    end, before = cursor.position, "the header"
    for entry in sorted(entries, key=lambda entry: (entry.offset, entry.name)):
        if entry.offset < end:
            cursor.refuse(f"tensor {entry.name!r} lies over {before}", needed="tensors that do not overlap")
        end, before = entry.offset + entry.nbytes, f"tensor {entry.name!r}"
        if end > cursor.size:
            raise FileReject(
                f"the GGUF is truncated inside the data of tensor {entry.name!r}",
                where=f"{cursor.path}, byte {entry.offset}",
                needed=f"a file of {end} bytes",
                available=f"{cursor.size} bytes",
                remedy=DOWNLOAD_AGAIN,
            )
