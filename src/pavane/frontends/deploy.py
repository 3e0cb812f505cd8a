"""The deployment form of a model: what its weight matrices are stored as, Q8_0 or block floats; the rest is float32.

Q8_0: one GGUF, which `deployment(model)` writes once per content of the source file into the user's cache directory and
afterwards only opens. Every 2-D tensor whose last extent is a multiple of 32 becomes Q8_0 by `gguf.quants` (bit-equal
to ggml's quantiser) from the dequantised float32; one that is Q8_0 already keeps its bytes. Norms, biases and odd
widths become float32. Metadata and GGUF names are kept, so other readers of GGUF read it too; tensors are aligned to
64 bytes. A source that has this form already is used as it is.

Block floats (`weights="bfp8"` or `"bfp4"`): every 2-D tensor whose last extent is a multiple of 16 is encoded
(`tensor_graph.block_float`) from the source's own dequantised float32 whenever it is asked for. No file is written: no
ggml type holds them. What each costs in accuracy is measured by bench/storage.py (bench/results/storage.md).

The file appears whole or not at all (`atomic.replacing`). The source's digest is remembered by (path, size, mtime), so
the second run does not hash it again; so is the file's, which is made again when somebody has changed it. Refuses
weights that are not finite numbers (`ModelReject`) and a cache directory that cannot be written (`FileReject`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote_from_bytes

import msgspec
import numpy as np
from gguf import GGUFWriter
from gguf.constants import GGMLQuantizationType, GGUFValueType, LlamaFileType
from gguf.quants import quantize

from pavane.atomic import replacing, sweep
from pavane.frontends.gguf import GgufModel, read_gguf
from pavane.frontends.gguf_file import ROWS_AT_ONCE, GgufFile, Metadata
from pavane.frontends.gguf_header import DEFAULT_ALIGNMENT, TensorEntry
from pavane.frontends.progress import Progress, silent
from pavane.ir.types import (
    MAGNITUDE_BITS,
    Q8_BLOCK_BYTES,
    STORED_WEIGHTS,
    DType,
    StoredWeights,
    block_elements,
    row_bytes,
)
from pavane.reject import ArgumentReject, FileReject, ModelReject
from pavane.tensor_graph.blocks import decode_blocks, encode_blocks
from pavane.tensor_graph.decoder import DecoderConfig
from pavane.user_cache import user_cache

FORM = 1
ALIGNMENT_BYTES = 64
SOURCE_KEY = "pavane.source_sha256"
FORM_KEY = "pavane.deployment_form"
INDEX_NAME = "sources.json"
REPLACED_KEYS = ("general.alignment", "general.file_type", "general.architecture", SOURCE_KEY, FORM_KEY)


class StoredWeight(msgspec.Struct, frozen=True):
    """What one tensor is stored as, and where its bytes lie in the file (block floats are made of what lies there).

    `shape` in elements, `offset` and `nbytes` in bytes.
    """

    shape: tuple[int, ...]
    dtype: DType
    offset: int
    nbytes: int


class FileRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the index remembers of a source file, or of what was made of it: `digest` is the source's."""

    size: int
    mtime_ns: int
    digest: str


class DeployedModel:
    """A model as deployed: `path`, `config`, `digest` (SHA-256 of the *source* file, hex), what matrices are `stored`
    as, `weights`, arrays. Its name is the source's: a deployment file's own may come from a copy of other name.
    """

    def __init__(self, model: GgufModel, digest: str, stored: StoredWeights = "q8_0", name: str = "") -> None:
        self.model = model
        self.config: DecoderConfig = msgspec.structs.replace(model.config, name=name or model.config.name)
        self.digest = digest
        self.stored = stored
        self.weights = {name: _stored(entry, stored) for name, entry in model.tensors.items()}

    @property
    def path(self) -> Path:
        return self.model.path

    @property
    def metadata(self) -> Metadata:
        return self.model.metadata

    def array(self, name: str) -> np.ndarray:
        """The tensor as stored: in blocks as uint8 [rows, bytes of a row], f32 as float32 in its shape. Of a deployment
        file a read-only view.
        """
        weight, entry = self.weights[name], self.model.tensors[name]
        if self.stored in MAGNITUDE_BITS:
            parts = list(_converted(self.model.file, entry, self.stored))
            return np.concatenate(parts).reshape(weight.shape if weight.dtype == "f32" else (entry.rows, -1))
        raw = self.model.file.raw(entry.name)
        return raw if weight.dtype == "q8_0" else raw.view("<f4").reshape(weight.shape)

    def tensor_f32(self, name: str) -> np.ndarray:
        """The weight as float32 in its shape (dequantised: what a reference computes with)."""
        dtype = self.weights[name].dtype
        return decode_blocks(self.array(name), dtype) if dtype in MAGNITUDE_BITS else self.model.tensor_f32(name)


def deployment(
    model: GgufModel,
    cache_dir: Path | str | None = None,
    progress: Progress | None = None,
    weights: StoredWeights = "q8_0",
) -> DeployedModel:
    """The model in deployment form; a file is made on the first call. `progress(what, bytes done, bytes in all)`."""
    if weights not in STORED_WEIGHTS:
        raise ArgumentReject(f"weights are not stored as {weights!r}", remedy=f"one of {', '.join(STORED_WEIGHTS)}")
    cache, report = user_cache(cache_dir), progress or silent
    try:
        digest = _digest(model.file, cache, report)
        if weights in MAGNITUDE_BITS or _is_deployed(model.file):
            return DeployedModel(model, digest, weights)
        target = cache / "deployed" / f"{digest}.q8_0.gguf"
        found = _open_finished(target, digest, cache)
        if found is None:
            sweep(target.parent)
            with replacing(target) as temporary:
                _write(model, digest, temporary, report)
            _remember(target, digest, cache)
            found = read_gguf(target)
        return DeployedModel(found, digest, name=model.config.name)
    except OSError as error:
        raise FileReject(
            f"cannot write the deployment form ({error.strerror or error})",
            where=str(error.filename or cache),
            needed=f"about {sum(_deployed_bytes(entry) for entry in model.file.tensors.values())} bytes on the disk",
            remedy="free space there, or give another cache directory",
        ) from error


def deployed_dtype(shape: tuple[int, ...], weights: StoredWeights = "q8_0") -> DType:
    """The dtype that a tensor of this shape has in deployment form: that of the weights where rows are whole blocks."""
    return weights if len(shape) == 2 and shape[-1] % block_elements(weights) == 0 else "f32"


def _stored(entry: TensorEntry, weights: StoredWeights) -> StoredWeight:
    return StoredWeight(entry.shape, deployed_dtype(entry.shape, weights), entry.offset, entry.nbytes)


def _is_deployed(file: GgufFile) -> bool:
    right_types = all(entry.ggml_type == deployed_dtype(entry.shape).upper() for entry in file.tensors.values())
    return right_types and file.alignment % DEFAULT_ALIGNMENT == 0


def _deployed_bytes(entry: TensorEntry) -> int:
    return entry.rows * row_bytes(deployed_dtype(entry.shape), entry.shape[-1])


def _open_finished(target: Path, digest: str, cache: Path) -> GgufModel | None:
    """The finished file, or None when there is none or it is not what was written (it is then made again)."""
    if not target.exists() or _remembered(target, cache) != digest:
        return None
    try:
        model = read_gguf(target)
    except (FileReject, ModelReject):
        return None
    named = model.metadata.get(SOURCE_KEY) == digest and model.metadata.get(FORM_KEY) == FORM
    return model if named and _is_deployed(model.file) else None


def _digest(file: GgufFile, cache: Path, report: Progress) -> str:
    """SHA-256 of the source file, from the index when path, size and mtime are as they were.

    A file that will be used as it is has its numbers checked here, once, before the index remembers it.
    """
    remembered = _remembered(file.path, cache)
    if remembered is not None:
        return remembered
    digest = _hash(file.path, file.path.stat().st_size, report)
    if _is_deployed(file):
        for entry in file.tensors.values():
            for _ in _converted(file, entry):
                pass
    _remember(file.path, digest, cache)
    return digest


def _remembered(path: Path, cache: Path) -> str | None:
    """The digest that the index has for a file, while its size and mtime are as they were."""
    record, status = _read_index(cache / INDEX_NAME).get(_index_key(path, cache)), path.stat()
    as_it_was = record is not None and (record.size, record.mtime_ns) == (status.st_size, status.st_mtime_ns)
    return record.digest if record is not None and as_it_was else None


def _remember(path: Path, digest: str, cache: Path) -> None:
    index, status = _read_index(cache / INDEX_NAME), path.stat()
    index[_index_key(path, cache)] = FileRecord(status.st_size, status.st_mtime_ns, digest)
    with replacing(cache / INDEX_NAME) as temporary:
        temporary.write_bytes(msgspec.json.encode(index))


def _index_key(path: Path, cache: Path) -> str:
    """Of a file in the cache its place there, so that the cache can be moved."""
    real, home = path.resolve(), cache.resolve()
    return quote_from_bytes(os.fsencode(real.relative_to(home) if real.is_relative_to(home) else real))


def _read_index(path: Path) -> dict[str, FileRecord]:
    """The index; a missing or damaged one counts as empty, since it only saves work."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, FileRecord])
    except (FileNotFoundError, msgspec.DecodeError):
        return {}


def _hash(path: Path, size: int, report: Progress) -> str:
    state, done = hashlib.sha256(), 0
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            state.update(block)
            done += len(block)
            report("reading", done, size)
    return state.hexdigest()


def _write(model: GgufModel, digest: str, path: Path, report: Progress) -> None:
    file = model.file
    writer = GGUFWriter(path, model.config.architecture)
    try:
        writer.add_custom_alignment(ALIGNMENT_BYTES)
        writer.add_file_type(LlamaFileType.MOSTLY_Q8_0)
        writer.add_string(SOURCE_KEY, digest)
        writer.add_uint32(FORM_KEY, FORM)
        _copy_metadata(file.metadata, writer)
        for entry in file.tensors.values():
            _announce(entry, writer)
        writer.write_header_to_file(path)
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        total, done = sum(_deployed_bytes(entry) for entry in file.tensors.values()), 0
        for entry in file.tensors.values():
            writer.write_tensor_data(np.concatenate(list(_converted(file, entry))))
            done += _deployed_bytes(entry)
            report("converting", done, total)
    finally:
        writer.close()


def _copy_metadata(metadata: Metadata, writer: GGUFWriter) -> None:
    for key in metadata:
        entry, value = metadata.entry(key), metadata[key]
        if key in REPLACED_KEYS or (entry.kind == GGUFValueType.ARRAY and entry.count == 0):
            continue
        plain = value.tolist() if isinstance(value, np.ndarray) else value
        writer.add_key_value(key, plain, entry.kind, sub_type=entry.element)


def _announce(entry: TensorEntry, writer: GGUFWriter) -> None:
    if deployed_dtype(entry.shape) == "q8_0":
        byte_shape = (entry.rows, row_bytes("q8_0", entry.shape[-1]))
        kind = GGMLQuantizationType.Q8_0
        writer.add_tensor_info(entry.name, byte_shape, np.dtype(np.uint8), _deployed_bytes(entry), raw_dtype=kind)
    else:
        writer.add_tensor_info(entry.name, entry.shape, np.dtype(np.float32), _deployed_bytes(entry))


def _converted(file: GgufFile, entry: TensorEntry, weights: StoredWeights = "q8_0") -> Iterator[np.ndarray]:
    """The tensor's rows in deployment form, a few thousand at a time, refused unless all its numbers are finite."""
    dtype = deployed_dtype(entry.shape, weights)
    for start in range(0, entry.rows, ROWS_AT_ONCE):
        rows = file.rows_f32(entry.name, start, start + ROWS_AT_ONCE)
        _refuse_not_finite(file, entry, start, rows)
        if dtype == "f32":
            yield rows
        elif dtype in MAGNITUDE_BITS:
            yield encode_blocks(rows, dtype)
        elif entry.ggml_type == "Q8_0":
            yield file.raw(entry.name)[start : start + ROWS_AT_ONCE]
        else:
            with np.errstate(over="ignore"):
                quantised = quantize(rows, GGMLQuantizationType.Q8_0)
            scales = np.ascontiguousarray(quantised.reshape(-1, Q8_BLOCK_BYTES)[:, :2]).view("<f2")
            _refuse_not_finite(file, entry, start, scales)
            yield quantised


def _refuse_not_finite(file: GgufFile, entry: TensorEntry, start: int, numbers: np.ndarray) -> None:
    if not np.isfinite(numbers).all():
        raise ModelReject(
            f"tensor {entry.name} holds values that are not finite numbers, or too large for Q8_0",
            where=f"{file.path}, rows from {start} on",
            remedy="download or convert the model again",
        )
