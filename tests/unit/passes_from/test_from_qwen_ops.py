"""A decoder's sections mean what the plain decoder says, token by token and in blocks; layers add no shapes."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from pavane.ir.digest import shape_digest
from pavane.ir.program import Program
from pavane.passes.decoder_tensors import Forward, expected_weights
from pavane.passes.from_qwen_ops import decoder_sections
from pavane.reject import ArgumentReject, ModelReject
from pavane.targets.load import load_target
from pavane.tensor_graph.decoder import DecoderConfig, DecoderWeights
from pavane.tensor_graph.decoder_reference import decoder_reference
from pavane.tensor_graph.q8 import dequantise_q8, quantise_q8
from pavane.tensor_graph.reference import evaluate_sections
from pavane.validate import violations
from tests.tiny_models import rope_frequencies, tiny_config, tiny_gemma

TOY, HOST = load_target("toy"), load_target("host", cores=2)
CONFIGS = {
    "llama": tiny_config(),
    "odd": tiny_config(
        rope="halves", heads=6, kv_heads=3, head_width=10, width=50, feed_forward=70, tied_embeddings=False
    ),
    "qwen2": tiny_config(rope="halves", qkv_biases=True, heads=3, kv_heads=1),
    "qwen3": tiny_config(rope="halves", qk_norm=True, kv_heads=4, head_width=20),
    "gemma": tiny_gemma(layers=3),
    "mistral": tiny_config(attention_window=6, local_layers=(0, 1)),
    "no rope": tiny_config(rope="none", rope_inverse_frequencies=(), head_width=7, norm_offset=1.0),
}
TOKENS = np.random.default_rng(1).integers(0, 300, 13)


def stored_dtype(shape: tuple[int, ...], quantised: bool) -> str:
    return "q8_0" if quantised and len(shape) == 2 and shape[-1] % 32 == 0 else "f32"


def weight_table(config: DecoderConfig, quantised: bool = False) -> DecoderWeights:
    return DecoderWeights(tuple((n, s, stored_dtype(s, quantised)) for n, s in expected_weights(config)))


def random_weights(config: DecoderConfig) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    out = {}
    for name, shape in expected_weights(config):
        values = rng.normal(size=shape).astype(np.float32)
        out[name] = values / np.float32(shape[-1] ** 0.5) if len(shape) == 2 else 1 + np.float32(0.2) * values
    return out


def forward(config: DecoderConfig, rows: int | str, quantised: bool = False, contract: str = "FLOAT") -> Forward:
    return decoder_sections(
        config, weight_table(config, quantised), TOY, rows=rows, contract=contract, context=40, logits_every_row=True
    )


def run(config: DecoderConfig, sections: Forward, weights: dict[str, np.ndarray], block: int) -> np.ndarray:
    """Logits of all positions, in epochs of up to `block` rows. Caches start as NaN: no row is read before it is
    written.
    """
    state = dict(weights)
    state["rope_inverse_frequencies"] = np.array(config.rope_inverse_frequencies, np.float32)
    state["local_rope_inverse_frequencies"] = np.array(config.local_rope_inverse_frequencies, np.float32)
    for tensor in sections.tensors:
        if tensor.role == "STATE":
            state[tensor.name] = np.full([e.const for e in tensor.shape], np.nan, np.float16)
    out = []
    for position in range(0, len(TOKENS), block):
        state["ids"] = TOKENS[position : position + block].astype(np.int32)
        state = evaluate_sections(sections.sections, state, {"pos": position, "rows": len(state["ids"])})
        out.append(state["logits"])
    return np.concatenate(out)


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_sections_are_the_decoder(name: str) -> None:
    config = CONFIGS[name]
    weights = random_weights(config)
    expected = decoder_reference(config, weights, TOKENS, np.float64, np.float16)
    for rows, block in ((1, 1), ("rows", 32), ("rows", 5)):
        logits = run(config, forward(config, rows), weights, block)
        assert np.abs(logits - expected).max() <= 1e-4 * np.abs(expected).max()


def test_quantised_weights_and_the_last_row_only() -> None:
    config = CONFIGS["llama"]
    weights = random_weights(config)
    stored = {n: quantise_q8(w) if stored_dtype(w.shape, True) == "q8_0" else w for n, w in weights.items()}
    widened = {n: dequantise_q8(w) if w.dtype == np.uint8 else w for n, w in stored.items()}
    expected = decoder_reference(config, widened, TOKENS, np.float64, np.float16)
    last = decoder_sections(
        config, weight_table(config, True), TOY, rows="rows", contract="INT8_ACTIVATIONS", context=40
    )
    logits = run(config, last, stored, 5)
    assert logits.shape == (3, 300)
    np.testing.assert_allclose(logits, expected[[4, 9, 12]], atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("name", sorted(CONFIGS))
@pytest.mark.parametrize("target", [TOY, HOST], ids=["toy", "host"])
def test_sections_are_valid_templates(name: str, target) -> None:
    config = CONFIGS[name]
    for rows in (1, 7, "rows"):
        for contract in ("FLOAT", "INT8_ACTIVATIONS"):
            made = decoder_sections(
                config, weight_table(config, True), target, rows=rows, contract=contract, context=100
            )
            for section in made.sections:
                assert violations(section, target) == ()
            again = msgspec.json.decode(msgspec.json.encode(made), type=Forward)
            assert again == made


def test_layers_add_no_shapes() -> None:
    def shapes(config: DecoderConfig) -> set[str]:
        return {shape_digest(s.shapes[0]) for s in forward(config, "rows", True).sections}

    few, many = (shapes(replace(CONFIGS["llama"], layers=n)) for n in (1, 7))
    assert few == many
    assert len(many) == 11  # rope table, embedding, q, k = v apart from rope, attention, o, gate, up, down, logits
    assert len(forward(replace(CONFIGS["llama"], layers=7), 1).sections) == 2 + 7 * 8 + 1
    gemma = [shapes(tiny_gemma(layers=n)) for n in (6, 12)]
    assert gemma[0] == gemma[1]


def test_decode_and_prompt_share_weights_and_state() -> None:
    decode, prompt = (forward(CONFIGS["qwen3"], rows) for rows in (1, "rows"))
    for role in ("WEIGHT", "STATE"):
        ours, theirs = ({(t.name, t.shape, t.dtype) for t in f.tensors if t.role == role} for f in (decode, prompt))
        assert ours == theirs
    caches = [t for t in prompt.tensors if t.role == "STATE"]
    assert [t.name for t in caches[:2]] == ["layers.0.k_cache", "layers.0.v_cache"]
    assert caches[0].shape[0].const == 40 + 31
    assert str(caches[0].transition.row), str(caches[0].transition.rows) == ("pos", "rows")


def test_panels_follow_the_contract() -> None:
    config = CONFIGS["llama"]
    for contract, panel in (("FLOAT", "f32"), ("INT8_ACTIVATIONS", "q8_0")):
        made = {s.name: s.shapes[0] for s in forward(config, "rows", True, contract).sections}
        for name in ("layers.0.q", "layers.1.gate", "logits"):
            assert next(c for c in made[name].carries if c.name == "panel").dtype == panel
        down = [c.dtype for c in made["layers.0.down"].carries if c.name == "panel"]
        assert down == (["q8_0"] if contract == "INT8_ACTIVATIONS" else [])
        assert made["layers.0.attention"].numerics.contract == "FLOAT"


def test_cuts_are_marked() -> None:
    config = tiny_config(rope="halves", qkv_biases=True, qk_norm=True)
    made = {s.name: s.shapes[0] for s in forward(config, 1).sections}
    cut = {name: [c.name for c in made[name].carries if c.cut] for name in ("layers.0.q", "layers.0.v", "layers.0.up")}
    assert cut == {"layers.0.q": ["biased", "head_normed"], "layers.0.v": [], "layers.0.up": ["activated"]}


def test_same_bytes_every_time() -> None:
    first, second = (msgspec.json.encode(forward(CONFIGS["gemma"], "rows")) for _ in range(2))
    assert first == second


# --- refusals ---------------------------------------------------------------------------------------------------------


def made_with(config: DecoderConfig, weights: DecoderWeights | None = None, **arguments) -> tuple[Program, ...]:
    chosen = {"rows": 1, "contract": "FLOAT", "context": 8} | arguments
    return decoder_sections(config, weights or weight_table(config), TOY, **chosen).sections


def test_every_fault_of_the_weights_is_named() -> None:
    config = CONFIGS["llama"]
    table = [list(t) for t in weight_table(config).tensors]
    table = [t for t in table if t[0] != "layers.1.up"]
    table[1][1] = (65,)
    table[2][2] = "i8"
    with pytest.raises(ModelReject) as caught:
        made_with(config, DecoderWeights(tuple((n, s, d) for n, s, d in table)))
    assert caught.value.terms == (
        "layers.0.attention_norm: shape (65,), needed (64,)",
        "layers.0.q: stored as i8, needed one of f32, f16, bf16, q8_0, bfp8, bfp4",
        "layers.1.up: missing",
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kv_heads": 3}, "no multiple"),
        ({"head_width": 15}, "15 wide"),
        ({"rope_inverse_frequencies": (1.0,)}, "1 inverse frequencies"),
        ({"rope_inverse_frequencies": ()}, "no inverse frequencies"),
    ],
)
def test_contradicting_figures(change: dict, says: str) -> None:
    config = replace(CONFIGS["llama"], **change)
    with pytest.raises(ModelReject, match=says):
        made_with(config)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"rows": 33}, "1 to 32 rows"),
        ({"rows": 0}, "1 to 32 rows"),
        ({"context": 0}, "one position"),
        ({"contract": "INT4"}, "INT4"),
    ],
)
def test_arguments(arguments: dict, says: str) -> None:
    with pytest.raises(ArgumentReject, match=says):
        made_with(CONFIGS["llama"], **arguments)


def test_prompt_programs_of_a_target_share_caches_for_its_longest_block() -> None:
    config = CONFIGS["llama"]
    made = [
        decoder_sections(config, weight_table(config), HOST, rows="rows", contract="FLOAT", context=40, most_rows=most)
        for most in (32, 64, None)
    ]
    assert [next(s.hi for s in forward.symbols if s.name == "rows") for forward in made] == [32, 64, 64]
    caches = [[t for t in forward.tensors if t.role == "STATE"] for forward in made]
    assert caches[0] == caches[1] == caches[2]
    assert caches[0][0].shape[0].const == 40 + 63


def test_rope_frequencies_are_a_weight() -> None:
    made = forward(tiny_config(rope_inverse_frequencies=rope_frequencies(500.0, 16)), 1)
    table = next(t for t in made.tensors if t.name == "rope_inverse_frequencies")
    assert (table.role, table.shape[0].const) == ("WEIGHT", 8)
