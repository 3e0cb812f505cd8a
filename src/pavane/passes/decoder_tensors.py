"""The tensors of a decoder's sections: weights as deployed, caches, scratch between sections.

`decoder_context` checks the weights against the figures and gives what every section maker needs.
"""

from __future__ import annotations

from typing import cast

import msgspec

from pavane.ir.program import Program, Symbol, Tensor, Transition
from pavane.ir.quasi import Quasi, quasi
from pavane.ir.types import Contract, DType, block_elements
from pavane.passes.template import extents
from pavane.reject import ArgumentReject, ModelReject
from pavane.targets.descriptor import SpatialTarget
from pavane.targets.prompt_rows import prompt_rows
from pavane.tensor_graph.decoder import DecoderConfig, DecoderWeights

CACHE_DTYPE: DType = "f16"
ROPE_TABLE, LOCAL_ROPE_TABLE = "rope", "local_rope"
PRODUCT_DTYPES = ("f32", "f16", "bf16", "q8_0", "bfp8", "bfp4")


class Forward(msgspec.Struct, frozen=True):
    """A whole forward as TEMPLATE sections, one program each, in order; `tensors` are all that they bind."""

    name: str
    symbols: tuple[Symbol, ...]
    tensors: tuple[Tensor, ...]
    sections: tuple[Program, ...]


class Decoder(msgspec.Struct, frozen=True):
    """What every section maker of a decoder needs."""

    config: DecoderConfig
    target: SpatialTarget
    contract: Contract
    context: int
    rows: Quasi
    symbols: tuple[Symbol, ...]
    weights: dict[str, Tensor]

    @property
    def position(self) -> Quasi:
        return quasi("pos")

    @property
    def live(self) -> Quasi:
        """Positions that have keys and values in this epoch."""
        return self.position + self.rows

    def scratch(self, name: str, *dims: int) -> Tensor:
        """A tensor between sections, one row a position of the epoch."""
        return Tensor(name, extents(self.rows, *dims), "f32", "SCRATCH")

    def cache(self, layer: int, which: str) -> Tensor:
        """Keys or values of all positions; an epoch writes its own rows."""
        slack = prompt_rows(self.target)[-1] - 1  # every pair (pos, rows) stays inside
        shape = extents(self.context + slack, self.config.kv_heads, self.config.head_width)
        name = f"layers.{layer}.{which}_cache"
        return Tensor(name, shape, CACHE_DTYPE, "STATE", transition=Transition(self.position, self.rows))

    def is_local(self, layer: int) -> bool:
        """Does the layer see only a sliding window?"""
        return layer in self.config.local_layers

    def rope_table(self, layer: int) -> str:
        """Which rope table a layer uses."""
        return LOCAL_ROPE_TABLE if self.is_local(layer) and self.config.local_rope_inverse_frequencies else ROPE_TABLE


def decoder_context(
    config: DecoderConfig,
    weights: DecoderWeights,
    target: SpatialTarget,
    rows: int | str,
    contract: Contract,
    context: int,
    most_rows: int | None = None,
) -> Decoder:
    """Check the arguments and the weights; every fault of the weights is named. `most_rows`: of a symbol, one of
    `prompt_rows` (default: the greatest).
    """
    _check_arguments(config, rows, contract, context, prompt_rows(target)[-1])
    symbols: tuple[Symbol, ...] = (Symbol("pos", 0, context - 1, context // 2),)
    if isinstance(rows, str):
        most = most_rows or prompt_rows(target)[-1]
        symbols = (*symbols, Symbol(rows, 1, most, most))
    given = {name: (shape, dtype) for name, shape, dtype in weights.tensors}
    expected = expected_weights(config)
    faults = [fault for name, shape in expected for fault in _faults(name, shape, given)]
    if faults:
        raise ModelReject(
            "the weights do not fit the decoder", where=config.name, terms=faults, remedy="convert the model again"
        )
    bound = {name: Tensor(name, extents(*shape), cast(DType, given[name][1]), "WEIGHT") for name, shape in expected}
    return Decoder(config, target, contract, context, quasi(rows), symbols, bound | rope_weights(config))


def expected_weights(config: DecoderConfig) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """(canonical name, shape) of every weight that the figures call for, in canonical order."""
    out: list[tuple[str, tuple[int, ...]]] = [("embedding", (config.vocabulary, config.width))]
    for layer in range(config.layers):
        out.extend((f"layers.{layer}.{name}", shape) for name, shape in _layer_weights(config))
    out.append(("output_norm", (config.width,)))
    if not config.tied_embeddings:
        out.append(("output", (config.vocabulary, config.width)))
    return tuple(out)


def rope_weights(config: DecoderConfig) -> dict[str, Tensor]:
    """The inverse frequencies are figures of the config; at run time they are a weight."""
    found = {
        ROPE_TABLE: config.rope_inverse_frequencies,
        LOCAL_ROPE_TABLE: config.local_rope_inverse_frequencies,
    }
    names = {table: f"{table}_inverse_frequencies" for table, values in found.items() if values}
    return {n: Tensor(n, extents(len(found[table])), "f32", "WEIGHT") for table, n in names.items()}


def _layer_weights(config: DecoderConfig) -> tuple[tuple[str, tuple[int, ...]], ...]:
    width, q, kv = config.width, config.heads * config.head_width, config.kv_heads * config.head_width
    biases = (("q_bias", (q,)), ("k_bias", (kv,)), ("v_bias", (kv,))) if config.qkv_biases else ()
    head_norms = (("q_norm", (config.head_width,)), ("k_norm", (config.head_width,))) if config.qk_norm else ()
    post = (("post_attention_norm", (width,)), ("post_ffn_norm", (width,))) if config.post_norms else ()
    return (
        ("attention_norm", (width,)), ("q", (q, width)), ("k", (kv, width)), ("v", (kv, width)), *biases, *head_norms,
        ("o", (width, q)), ("ffn_norm", (width,)), ("gate", (config.feed_forward, width)),
        ("up", (config.feed_forward, width)), ("down", (width, config.feed_forward)), *post,
    )  # fmt: skip


def _faults(name: str, shape: tuple[int, ...], given: dict[str, tuple[tuple[int, ...], str]]) -> tuple[str, ...]:
    if name not in given:
        return (f"{name}: missing",)
    found_shape, dtype = given[name]
    if tuple(found_shape) != shape:
        return (f"{name}: shape {tuple(found_shape)}, needed {shape}",)
    allowed = PRODUCT_DTYPES if len(shape) == 2 else ("f32",)
    if dtype not in allowed:
        return (f"{name}: stored as {dtype}, needed one of {', '.join(allowed)}",)
    if shape[-1] % block_elements(dtype):
        return (f"{name}: {dtype} with rows of {shape[-1]}, needed a multiple of {block_elements(dtype)}",)
    return ()


def _check_arguments(config: DecoderConfig, rows: int | str, contract: str, context: int, most_rows: int) -> None:
    if context < 1:
        raise ArgumentReject("a context has at least one position", needed="1", available=str(context))
    if isinstance(rows, int) and not 1 <= rows <= most_rows:
        raise ArgumentReject(
            f"an epoch has 1 to {most_rows} rows",
            needed=f"{rows} rows",
            remedy=f"give 1 to {most_rows}, or the symbol 'rows'",
        )
    if contract not in ("FLOAT", "INT8_ACTIVATIONS"):
        raise ArgumentReject(f"no contract is named {contract!r}", remedy="FLOAT or INT8_ACTIVATIONS")
    faults = []
    if config.heads % config.kv_heads:
        faults.append(f"{config.heads} heads are no multiple of {config.kv_heads} key and value heads")
    if config.rope != "none" and config.head_width % 2:
        faults.append(f"rope turns pairs, and a head is {config.head_width} wide")
    for values in (config.rope_inverse_frequencies, config.local_rope_inverse_frequencies):
        if config.rope != "none" and len(values) not in (0, config.head_width // 2):
            faults.append(f"{len(values)} inverse frequencies, needed {config.head_width // 2}")
    if config.rope != "none" and not config.rope_inverse_frequencies:
        faults.append("no inverse frequencies for rope")
    if faults:
        raise ModelReject("the decoder's figures contradict each other", where=config.name, terms=faults)
