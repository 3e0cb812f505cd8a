"""A process that examines cases under a limit of memory, begun anew when it dies or does not answer.

with Sandbox() as sandbox: sandbox.examine(case) -> Outcome
"""

from __future__ import annotations

import multiprocessing
import resource
from multiprocessing.connection import Connection
from types import TracebackType

from tests.fuzz.target import Outcome, examine

MEMORY_BYTES = 3 << 30
ANSWER_SECONDS = 600.0


class Sandbox:
    """Holds one working process."""

    def __init__(self) -> None:
        self._begin()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.end()
        self._connection.close()

    def examine(self, data: bytes) -> Outcome:
        """The outcome; a process that dies or hangs is a finding."""
        try:
            self._connection.send_bytes(data)
            if not self._connection.poll(ANSWER_SECONDS):
                return self._again("HANG: no answer")
            return self._connection.recv()
        except (EOFError, ConnectionError):
            self._process.join()
            return self._again(f"DEATH: the process ends with {self._process.exitcode}")

    def end(self) -> None:
        """Stop the working process."""
        self._process.kill()
        self._process.join()

    def _again(self, finding: str) -> Outcome:
        self.end()
        self._connection.close()
        self._begin()
        return Outcome("process", finding)

    def _begin(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other,), daemon=True)
        self._process.start()
        other.close()


def _serve(connection: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    while True:
        try:
            data = connection.recv_bytes()
        except EOFError:
            return
        connection.send(examine(data))
