"""A `.pavane` file: one program with its certificate, its chip, what each pass did, and which weights it is for.

    pavane 1 <SHA-256 of the content, in hexadecimal>\\n      an ASCII line
    the content                                             JSON of `Artefact`, compressed with zlib

The content is canonical, so equal artefacts have equal content on every machine (the compressed bytes also depend on
the zlib that wrote them). Weights are named by path and digest, never contained. Writing is atomic.

`read_artefact` refuses (FileReject) a file that is missing, too big, cut short, edited, of another version, or whose
content is no artefact, nested too deeply, or for another chip than it says. It does not say that the program is
right: that is for the checker. `require_target` refuses (TargetReject) an artefact for another chip.
"""

from __future__ import annotations

import hashlib
import os
import stat
import zlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from pavane.atomic import replacing
from pavane.ir.digest import canonical_bytes
from pavane.ir.program import Program
from pavane.reject import FileReject, TargetReject
from pavane.targets.check import check_target
from pavane.targets.descriptor import SpatialTarget, target_digest

VERSION = 1
MAGIC = b"pavane "
HEADER_BYTES = 128
MAX_FILE_BYTES = 32 << 20
MAX_CONTENT_BYTES = 32 << 20  # a model of 126 layers, the most that is public, has 16 MB on the chip that takes most
_COMPRESSION = 6


class PassRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one pass did to one section: the digest after it, the predicted cycles, and the lines that it changed."""

    section: str
    name: str
    digest: str
    cycles: int
    change: str = ""


class WeightReference(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the weights come from: a model file (as it was found; None when not on disk), and its SHA-256."""

    path: str | None
    sha256: str
    tensors: tuple[str, ...] = ()


class ModelInfo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of which model the program is, which of its two programs, and what was asked for."""

    name: str
    part: str
    contract: str
    context: int
    weights: str = "q8_0"


class Artefact(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """All that a `.pavane` file says."""

    program: Program
    target: SpatialTarget
    weights: WeightReference | None = None
    passes: tuple[PassRecord, ...] = ()
    model: ModelInfo | None = None


def weight_reference(path: Path, sha256: str, tensors: Iterable[str]) -> WeightReference:
    """The reference to a file's weights; bytes of its name that are not UTF-8 are spelled out."""
    return WeightReference(os.fsencode(path).decode("utf-8", "backslashreplace"), sha256, tuple(tensors))


def write_artefact(path: Path | str, artefact: Artefact) -> None:
    """Write the file whole or not at all. Raises FileReject when it cannot be written."""
    path = Path(path)
    try:
        with replacing(path) as temporary:
            temporary.write_bytes(artefact_bytes(artefact))
    except OSError as error:
        raise FileReject(
            f"cannot write the program ({error.strerror or error})", where=str(path), remedy="give another place"
        ) from error


def artefact_bytes(artefact: Artefact) -> bytes:
    """The bytes of the file. Raises FileReject where `read_artefact` would refuse them."""
    content = canonical_bytes(artefact)
    if len(content) > MAX_CONTENT_BYTES:
        raise FileReject(
            "the program is too big for a file",
            where=artefact.program.name,
            needed=f"{len(content)} bytes",
            available=f"{MAX_CONTENT_BYTES} bytes",
            remedy="a model with fewer layers",
        )
    line = MAGIC + f"{VERSION} {hashlib.sha256(content).hexdigest()}\n".encode()
    return line + zlib.compress(content, _COMPRESSION)


def read_artefact(path: Path | str) -> Artefact:
    """The artefact in a file. Raises FileReject."""
    path = Path(path)
    try:
        status = path.stat()
        size, regular = status.st_size, stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
        data = path.read_bytes() if regular and size <= MAX_FILE_BYTES else b""
    except OSError as error:
        raise FileReject(
            f"cannot read the program ({error.strerror or error})",
            where=str(path),
            remedy="give the path of a file that `pavane compile` wrote",
        ) from error
    if not regular:
        raise _refusal(path, "this is no regular file", "a file that `pavane compile` wrote")
    if size > MAX_FILE_BYTES:
        raise _refusal(path, "the file is too big", f"at most {MAX_FILE_BYTES} bytes", f"{size} bytes")
    return parse_artefact(data, path)


def parse_artefact(data: bytes, path: Path | str = "") -> Artefact:
    """The artefact that bytes hold; `path` is for messages. Raises FileReject."""
    content = _content(data, path)
    try:
        artefact = msgspec.json.decode(content, type=Artefact)
    except RecursionError as error:
        raise _refusal(path, "the content is nested too deeply", "a program") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise _refusal(path, f"the content is no program ({error})", "a program") from error
    try:
        check_target(artefact.target)
    except TargetReject as error:
        raise _refusal(path, f"the file's chip contradicts itself ({'; '.join(error.terms)})", "a chip") from error
    if artefact.program.target_digest != target_digest(artefact.target):
        raise _refusal(path, "the file holds another chip than its program is for", "the program's chip")
    return artefact


def require_target(artefact: Artefact, target: SpatialTarget) -> Artefact:
    """The artefact, when it is for this very chip. Raises TargetReject."""
    if artefact.program.target_digest != target_digest(target):
        raise TargetReject(
            "the program is for another chip",
            where=f"program {artefact.program.name}",
            needed=f"{target.name}, {target_digest(target)[:16]}",
            available=f"{artefact.program.target}, {artefact.program.target_digest[:16]}",
            remedy=f"compile it again with -t {target.name}",
        )
    return artefact


def _content(data: bytes, path: Path | str) -> bytes:
    """The decompressed content, once its digest is the one in the first line."""
    line, newline, packed = data[:HEADER_BYTES].partition(b"\n")
    words = line.split(b" ")
    if not line.startswith(MAGIC) or not newline or len(words) != 3:
        raise _refusal(path, "this is no .pavane file", "a first line `pavane 1 <digest>`")
    if words[1] != str(VERSION).encode():
        raise _refusal(path, "the file has another version", f"{VERSION}", words[1].decode("ascii", "replace"))
    packed = data[len(line) + 1 :]
    unpacking = zlib.decompressobj()
    try:
        content = unpacking.decompress(packed, MAX_CONTENT_BYTES)
    except zlib.error as error:
        raise _refusal(path, f"the file is damaged ({error})", "the bytes that were written") from error
    if unpacking.unconsumed_tail:
        raise _refusal(path, "the content is too big", f"at most {MAX_CONTENT_BYTES} bytes")
    if not unpacking.eof:
        raise _refusal(path, "the file is cut short", "the bytes that were written")
    if unpacking.unused_data or hashlib.sha256(content).hexdigest().encode() != words[2]:
        raise _refusal(path, "the file was changed after it was written", "the bytes that its first line names")
    return content


def _refusal(path: Path | str, what: str, needed: str, available: str = "") -> FileReject:
    return FileReject(what, where=str(path), needed=needed, available=available, remedy="compile the program again")
