"""An open GGUF: lazy metadata, the tensor table, the tensors' bytes and their float32 values. It knows no model.

The file is mapped, never read whole: opening one takes tens of milliseconds whatever its size, metadata is decoded and
tensors are dequantised when asked for. Refuses (`FileReject`) a path that is no readable regular file, a text that is
not UTF-8, and all that `gguf_header` refuses.
"""

from __future__ import annotations

import mmap
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf.constants import GGMLQuantizationType, GGUFValueType
from gguf.quants import dequantize

from pavane.frontends.gguf_header import DOWNLOAD_AGAIN, MAGIC, SCALAR_CODES, Cursor, KeyValue, read_header
from pavane.reject import FileReject

ROWS_AT_ONCE = 4096


class GgufFile:
    """An open GGUF: `metadata` (a lazy mapping), `tensors` by name in file order, and the tensors' bytes."""

    def __init__(self, path: Path, view: mmap.mmap) -> None:
        header = read_header(Cursor(path, view))
        self.path = path
        self.size_bytes = len(view)
        self.version = header.version
        self.alignment = header.alignment
        self.metadata = Metadata(path, view, header.entries)
        self.tensors = header.tensors
        self._view = view

    @classmethod
    def open(cls, path: Path | str) -> GgufFile:
        """Open and check a file. Raises FileReject or ModelReject."""
        path = Path(path)
        try:
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):
                raise FileReject("not a regular file", where=str(path), remedy="give the path of a GGUF file")
            if status.st_size < len(MAGIC):
                raise FileReject(
                    "the file is too short to be a GGUF",
                    where=str(path),
                    needed="24 bytes at least",
                    available=f"{status.st_size} bytes",
                    remedy=DOWNLOAD_AGAIN,
                )
            with open(path, "rb") as file:
                view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise FileReject(
                f"cannot read the file ({error.strerror or error})",
                where=str(path),
                remedy="check the path and its rights",
            ) from error
        return cls(path, view)

    def raw(self, name: str) -> np.ndarray:
        """The stored bytes as a read-only uint8 view [rows, bytes of a row]."""
        entry = self.tensors[name]
        flat = np.frombuffer(self._view, np.uint8, entry.nbytes, entry.offset)
        return flat.reshape(entry.rows, entry.nbytes // entry.rows)

    def tensor_f32(self, name: str) -> np.ndarray:
        """The tensor dequantised to float32, in its shape."""
        entry = self.tensors[name]
        out = np.empty((entry.rows, entry.shape[-1]), np.float32)
        for start in range(0, entry.rows, ROWS_AT_ONCE):
            out[start : start + ROWS_AT_ONCE] = self.rows_f32(name, start, start + ROWS_AT_ONCE)
        return out.reshape(entry.shape)

    def rows_f32(self, name: str, start: int, stop: int) -> np.ndarray:
        """Rows [start, stop) dequantised to float32 [rows, columns]; rows past the end are left out."""
        data = self.raw(name)[start:stop]
        kind = GGMLQuantizationType[self.tensors[name].ggml_type]
        if kind == GGMLQuantizationType.F32:
            return data.view("<f4").astype(np.float32)
        if kind == GGMLQuantizationType.F16:
            return data.view("<f2").astype(np.float32)
        with np.errstate(all="ignore"):  # a scale of the file may be no number: whoever uses the values checks them
            return dequantize(data, kind)


class Metadata(Mapping[str, Any]):
    """The file's key-values: scalars as Python values, numeric arrays as numpy arrays, string arrays as lists."""

    def __init__(self, path: Path, view: mmap.mmap, entries: dict[str, KeyValue]) -> None:
        self._path = path
        self._view = view
        self._entries = entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries  # Mapping's own would decode the value

    def __getitem__(self, key: str) -> Any:
        entry = self._entries[key]
        cursor = Cursor(self._path, self._view, entry.offset)
        if entry.element is None:
            return cursor.value(entry.kind, key)
        if entry.element == GGUFValueType.STRING:
            return cursor.strings(entry.count, key)
        dtype = np.dtype("<" + SCALAR_CODES[entry.element])
        return np.frombuffer(self._view, dtype, entry.count, entry.offset).copy()

    def entry(self, key: str) -> KeyValue:
        """How the value is stored (its type, and for an array its length), without decoding it."""
        return self._entries[key]
