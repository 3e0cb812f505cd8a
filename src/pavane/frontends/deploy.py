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
the second run does not hash it again. Refuses weights that are not finite numbers (`ModelReject`) and a cache directory
that cannot be written (`FileReject`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote_from_bytes

import msgspec
import numpy as np
import platformdirs
from gguf import GGUFWriter
from gguf.constants import GGMLQuantizationType, GGUFValueType, LlamaFileType
from gguf.quants import quantize

from ..ir.types import MAGNITUDE_BITS, STORED_WEIGHTS, DType, StoredWeights, block_elements
from ..reject import ArgumentReject, FileReject, ModelReject
from ..tensor_graph.blocks import decode_blocks, encode_blocks
from ..tensor_graph.forward import DecoderConfig
from .atomic import replacing, sweep
from .gguf import GgufModel, read_gguf
from .gguf_file import ROWS_AT_ONCE, GgufFile, Metadata
from .gguf_header import TensorEntry

FORM = 1
ALIGNMENT_BYTES = 64
BLOCK = 32
BLOCK_BYTES = 34
SOURCE_KEY = "pavane.source_sha256"
FORM_KEY = "pavane.deployment_form"
INDEX_NAME = "sources.json"
REPLACED_KEYS = ("general.alignment", "general.file_type", "general.architecture", SOURCE_KEY, FORM_KEY)

Progress = Callable[[str, int, int], None]


class StoredWeight(msgspec.Struct, frozen=True):
    """What one tensor is stored as, and where its bytes lie in the file (block floats are made of what lies there).

    `shape` in elements, `offset` and `nbytes` in bytes.
    """

    shape: tuple[int, ...]
    dtype: DType
    offset: int
    nbytes: int


class SourceRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the index remembers of a source file."""

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
        raise ArgumentReject(f"weights are not stored as {weights!r}", needed=" or ".join(STORED_WEIGHTS))
    cache = Path(cache_dir) if cache_dir is not None else Path(platformdirs.user_cache_dir("pavane"))
    report = progress or _silent
    try:
        digest = _digest(model.file, cache, report)
        if weights in MAGNITUDE_BITS or _is_deployed(model.file):
            return DeployedModel(model, digest, weights)
        target = cache / "deployed" / f"{digest}.q8_0.gguf"
        found = _open_finished(target, digest)
        if found is None:
            sweep(target.parent)
            with replacing(target) as temporary:
                _write(model, digest, temporary, report)
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
    return right_types and file.alignment % BLOCK == 0


def _deployed_bytes(entry: TensorEntry) -> int:
    columns = entry.shape[-1]
    row_bytes = columns // BLOCK * BLOCK_BYTES if deployed_dtype(entry.shape) == "q8_0" else columns * 4
    return entry.rows * row_bytes


def _open_finished(target: Path, digest: str) -> GgufModel | None:
    """The finished file, or None when there is none or it is not what its name says (it is then made again)."""
    if not target.exists():
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
    status, key = file.path.stat(), quote_from_bytes(os.fsencode(file.path.resolve()))
    index_path = cache / INDEX_NAME
    index = _read_index(index_path)
    record = index.get(key)
    if record is not None and (record.size, record.mtime_ns) == (status.st_size, status.st_mtime_ns):
        return record.digest
    digest = _hash(file.path, status.st_size, report)
    if _is_deployed(file):
        for entry in file.tensors.values():
            for _ in _converted(file, entry):
                pass
    index[key] = SourceRecord(status.st_size, status.st_mtime_ns, digest)
    with replacing(index_path) as temporary:
        temporary.write_bytes(msgspec.json.encode(index))
    return digest


def _read_index(path: Path) -> dict[str, SourceRecord]:
    """The index; a missing or damaged one counts as empty, since it only saves work."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, SourceRecord])
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
        byte_shape = (entry.shape[0], entry.shape[1] // BLOCK * BLOCK_BYTES)
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
            scales = np.ascontiguousarray(quantised.reshape(-1, BLOCK_BYTES)[:, :2]).view("<f2")
            _refuse_not_finite(file, entry, start, scales)
            yield quantised


def _refuse_not_finite(file: GgufFile, entry: TensorEntry, start: int, numbers: np.ndarray) -> None:
    if not np.isfinite(numbers).all():
        raise ModelReject(
            f"tensor {entry.name} holds values that are not finite numbers, or too large for Q8_0",
            where=f"{file.path}, rows from {start} on",
            remedy="download or convert the model again",
        )


def _silent(what: str, done: int, total: int) -> None:
    """Progress that nobody watches."""
