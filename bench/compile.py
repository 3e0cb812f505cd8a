"""What compiling the default model for `host` costs: passes and verify in a new process on one core, artefact size,
the check alone.

    python bench/compile.py [--model FILE.gguf] [--runs N]

"Compile" is passes and verify, without LLVM and weight conversion; "cold" is a new process. Each run is a process of
its own, with another PYTHONHASHSEED; the digests of all runs must be equal. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

CHILD = "--child"


def main() -> None:
    """Run the children and print medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument(CHILD, action="store_true")
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(measure(arguments.model)))
        return
    runs = [_child(arguments.model, seed) for seed in range(arguments.runs)]
    digests = {run["digests"] for run in runs}
    if len(digests) != 1:
        raise SystemExit(f"the bytes differ between runs: {sorted(digests)}")
    seconds = {k: statistics.median(run[k] for run in runs) for k in runs[0] if k.endswith("_seconds")}
    print(json.dumps(runs[0] | seconds | {"runs": len(runs)}, indent=2))


def _child(model: str, seed: int) -> dict:
    command = [sys.executable, __file__, CHILD, "--model", model]
    environment = os.environ | {"PYTHONHASHSEED": str(seed)}
    return json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def measure(model: str) -> dict:
    """Seconds and bytes of both programs, in this process, on one core."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    started = time.perf_counter()
    import pavane as pv
    from pavane.artefact import Artefact, artefact_bytes
    from pavane.frontends.models import fetch
    from pavane.ir.digest import program_digest

    imported = time.perf_counter() - started
    target = pv.as_target("host", 2)
    source = pv.gguf(model or fetch())
    out: dict = {"import_seconds": imported}
    digests = []
    for name, part in (("decode", source.decode()), ("prompt", source.prompt())):
        started = time.perf_counter()
        program = pv.compile(part, target)
        out[f"{name}_compile_and_verify_seconds"] = time.perf_counter() - started
        started = time.perf_counter()
        pv.check(program, target)
        out[f"{name}_check_seconds"] = time.perf_counter() - started
        out[f"{name}_artefact_bytes"] = len(artefact_bytes(Artefact(program, target)))
        digests.append(program_digest(program))
    return out | {"digests": " ".join(digests), "sections": len(program.instances), "shapes": len(program.shapes)}


if __name__ == "__main__":
    main()
