"""A conversation with a model: its prompt programs in blocks, then its decode program token by token.

`Session(model, target)` compiles (or finds) the programs and loads them over one set of weights and caches;
`generate` yields token ids. Positions go on from call to call, so a second prompt continues the conversation. Refuses
(ArgumentReject) an empty prompt, token ids outside the vocabulary and a prompt that does not fit what is left of the
context.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from pavane import native
from pavane.api import Gguf
from pavane.artefact import Artefact
from pavane.frontends.sampling import Sampler
from pavane.program_cache import decoder_artefact
from pavane.reject import ArgumentReject, ModelReject
from pavane.targets.descriptor import SpatialTarget
from pavane.targets.prompt_rows import prompt_rows

if TYPE_CHECKING:
    from pavane.pipeline import Observer


class Timing(msgspec.Struct):
    """Tokens and seconds of the prompt and of the generation of the last call."""

    prompt_tokens: int = 0
    prompt_seconds: float = 0.0
    tokens: int = 0
    seconds: float = 0.0

    @property
    def prompt_rate(self) -> float:
        """Tokens of the prompt per second."""
        return self.prompt_tokens / self.prompt_seconds if self.prompt_seconds else 0.0

    @property
    def rate(self) -> float:
        """Generated tokens per second; the first one comes out of the prompt and is not counted."""
        return self.tokens / self.seconds if self.seconds else 0.0


class Session:
    """The programs of a model, resident; `position` is how many positions the caches hold."""

    def __init__(
        self,
        model: Gguf,
        target: SpatialTarget,
        observer: Observer | None = None,
        cache_dir: Path | None = None,
    ) -> None:
        self.model = model
        self.decode: Artefact = decoder_artefact(model, "decode", target, observer, cache_dir)
        self.prompts: dict[int, Artefact] = {
            rows: decoder_artefact(model, "prompt", target, observer, cache_dir, rows) for rows in prompt_rows(target)
        }
        objects = None if cache_dir is None else cache_dir / "objects"
        self._decoder = native.load(
            self.decode.program,
            target,
            weights=model.weights(),
            weights_digest=model.weights_digest(),
            cache_dir=objects,
        )
        self._readers = {
            rows: native.load(prompt.program, target, weights={}, share=self._decoder, cache_dir=objects)
            for rows, prompt in self.prompts.items()
        }
        self.position = 0
        self.timing = Timing()

    def read(self, ids: Sequence[int]) -> np.ndarray:
        """Take a prompt in, block by block; the logits after its last token [vocabulary]."""
        check_prompt(ids, self.model, self.model.context - self.position)
        logits, rest = np.empty(0, np.float32), ids
        while len(rest):
            most_rows = fitting_rows(len(rest), tuple(self._readers))
            reader, block, rest = self._readers[most_rows], rest[:most_rows], rest[most_rows:]
            reader.launch({"pos": self.position, "rows": len(block)}, {"ids": np.array(block, np.int32)})
            self.position += len(block)
            logits = reader.tensor("logits")
        return np.array(logits[-1])

    def step(self, token: int) -> np.ndarray:
        """Take one token in; the logits after it [vocabulary]."""
        self._decoder.launch({"pos": self.position}, {"ids": np.array([token], np.int32)})
        self.position += 1
        return np.array(self._decoder.tensor("logits")[-1])

    @property
    def waited(self) -> tuple[float, ...]:
        """Of each worker's time in the decoding of tokens, the part in which it waited for others: their imbalance."""
        return tuple(float(part) for part in self._decoder.waited())

    def generate(
        self, ids: Sequence[int], sampler: Sampler, max_tokens: int, end_ids: Sequence[int] = ()
    ) -> Iterator[int]:
        """Token after token, until one of `end_ids` (not yielded), `max_tokens`, or the end of the context."""
        self.timing = timing = Timing(prompt_tokens=len(ids))
        start = time.perf_counter()
        logits = self.read(ids)
        timing.prompt_seconds = time.perf_counter() - start
        for number in range(max_tokens):
            token = self._picked(sampler, logits)
            if token in end_ids:
                return
            yield token
            if number + 1 == max_tokens or self.position >= self.model.context:
                return
            start = time.perf_counter()
            logits = self.step(token)
            timing.seconds += time.perf_counter() - start
            timing.tokens += 1

    def close(self) -> None:
        """End the threads of the programs."""
        for reader in self._readers.values():
            reader.close()
        self._decoder.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _picked(self, sampler: Sampler, logits: np.ndarray) -> int:
        try:
            return sampler.pick(logits)
        except ValueError as error:
            raise ModelReject(
                f"the model's answer is no number ({error})",
                where=f"{self.model.config.name}, position {self.position - 1}",
                needed="finite logits",
                remedy="download or convert the model again",
            ) from error


def fitting_rows(count: int, sizes: tuple[int, ...]) -> int:
    """Of these sizes of blocks (ascending) the one for the next of `count` tokens: the greatest that they fill by three
    quarters (with less, two of the next size are faster), else the least.
    """
    return next((rows for rows in reversed(sizes) if 4 * count >= 3 * rows), sizes[0])


def check_prompt(ids: Sequence[int], model: Gguf, room: int) -> None:
    """Token ids of the vocabulary, at least one and at most `room`. Raises ArgumentReject."""
    count = len(ids)
    if not 1 <= count <= room:
        raise ArgumentReject(
            "the prompt is longer than the context" if count else "the prompt is empty",
            needed=f"{count} positions" if count else "a prompt of at least one token",
            available=f"{room} of {model.context}" if count else "",
            remedy="give a shorter prompt, or a greater --context" if count else "give --prompt a text",
        )
    outside = [token for token in ids if not 0 <= token < model.config.vocabulary]
    if outside:
        raise ArgumentReject(
            f"token {outside[0]} is outside the vocabulary",
            needed=f"0 to {model.config.vocabulary - 1}",
            remedy="encode the prompt with the model's own tokenizer",
        )
