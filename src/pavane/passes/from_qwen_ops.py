"""`from_qwen_ops`: a decoder-only transformer -> its TEMPLATE sections, chains of Generic and MatmulTiles only.

    rope tables of the epoch | embedding gather
    per layer: q, k, v (norm, product, bias, head norm, rope; k and v append to the caches) | attention | o (+ residual)
               gate | up (activation(gate) * up) | down (+ residual)
               (with post norms, o and down are followed by a section: norm + residual)
    final norm and logits

Covers Llama, SmolLM, Mistral, Qwen2, Qwen3 and Gemma kinds: grouped heads, biases, norms of heads, both rope pairings,
sliding windows with a rope of their own, tied embeddings, scaled embeddings. Each weight moves as it is stored (f32,
f16, bf16, q8_0, and block floats where the target takes them). What an epilogue needs in several Generics is cut
through carries marked `cut`. Sections of different layers have equal shapes; only bindings differ.

Refusals: `ModelReject` (a weight is missing, misshapen or of a type without a product), `ArgumentReject` (rows,
context), `NoEngine`. Whether it fits the chip is asked where it is known what lies on the sites (`memory_beside`).
"""

from __future__ import annotations

from pavane.ir.types import Contract
from pavane.passes.decoder_ends import embedding, logits, rope_tables
from pavane.passes.decoder_layer import attention_part, feed_forward_part
from pavane.passes.decoder_tensors import Forward, decoder_context
from pavane.passes.stored_types import require_types
from pavane.targets.descriptor import SpatialTarget
from pavane.tensor_graph.decoder import DecoderConfig, DecoderWeights


def decoder_sections(
    config: DecoderConfig,
    weights: DecoderWeights,
    target: SpatialTarget,
    *,
    rows: int | str,
    contract: Contract,
    context: int,
    logits_every_row: bool = False,
    most_rows: int | None = None,
) -> Forward:
    """The sections of one epoch: `rows` tokens (1, or the symbol `rows`, 1 to `most_rows`) from `pos` on."""
    d = decoder_context(config, weights, target, rows, contract, context, most_rows)
    require_types(config.name, d.weights.values(), target)
    gathered, hidden = embedding(d)
    sections = [*rope_tables(d), gathered]
    for layer in range(config.layers):
        attention, hidden = attention_part(d, layer, hidden)
        feed_forward, hidden = feed_forward_part(d, layer, hidden)
        sections.extend((*attention, *feed_forward))
    sections.append(logits(d, hidden, logits_every_row))
    name = f"{config.name}.{'decode' if rows == 1 else 'prompt'}"
    tensors = {tensor.name: tensor for section in sections for tensor in section.tensors}
    return Forward(name, d.symbols, tuple(tensors.values()), tuple(sections))
