"""A GGUF model of given figures with random Q8_0 weights: for speed, where no real model of that size is at hand.

`random_model(path, figures)` writes it once. The matrices are one pool of random blocks read from different places,
scaled as a trained
model's are, so that activations stay in range; the vocabulary is made of numbers.
"""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

TINY_LLAMA = {
    "layers": 22,
    "width": 2048,
    "feed_forward": 5632,
    "heads": 32,
    "kv_heads": 4,
    "vocabulary": 32000,
    "context": 2048,
}
_POOL_BLOCKS = 1 << 18


def random_model(path: Path, figures: dict[str, int] = TINY_LLAMA) -> Path:
    """The file's path; it is written when it is not there."""
    if not path.exists():
        unfinished = path.with_suffix(".unfinished")
        writer = gguf.GGUFWriter(unfinished, "llama")
        _write_figures(writer, figures)
        pool = _pool(np.random.default_rng(0))
        for number, (name, shape) in enumerate(_tensors(figures)):
            if len(shape) == 1:
                writer.add_tensor(name, np.ones(shape, np.float32))
            else:
                writer.add_tensor(name, _matrix(pool, shape, number), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        unfinished.rename(path)
    return path


def _write_figures(writer: gguf.GGUFWriter, f: dict[str, int]) -> None:
    writer.add_name("random")
    writer.add_context_length(f["context"])
    writer.add_embedding_length(f["width"])
    writer.add_block_count(f["layers"])
    writer.add_feed_forward_length(f["feed_forward"])
    writer.add_head_count(f["heads"])
    writer.add_head_count_kv(f["kv_heads"])
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(f["width"] // f["heads"])
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(f["vocabulary"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_tokenizer_model("llama")
    special = ["<unk>", "<s>", "</s>"]
    bytes_ = [f"<0x{i:02X}>" for i in range(256)]
    words = [*special, *bytes_, *(f"w{i}" for i in range(f["vocabulary"] - len(special) - len(bytes_)))]
    kinds = [2, 3, 3, *[6] * 256, *[1] * (len(words) - 259)]
    writer.add_token_list(words)
    writer.add_token_scores([-float(i) for i in range(len(words))])
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def _tensors(f: dict[str, int]) -> list[tuple[str, tuple[int, ...]]]:
    width, kv = f["width"], f["width"] // f["heads"] * f["kv_heads"]
    out: list[tuple[str, tuple[int, ...]]] = [("token_embd.weight", (f["vocabulary"], width))]
    for i in range(f["layers"]):
        out += [
            (f"blk.{i}.{name}.weight", shape)
            for name, shape in (
                ("attn_norm", (width,)), ("attn_q", (width, width)), ("attn_k", (kv, width)), ("attn_v", (kv, width)),
                ("attn_output", (width, width)), ("ffn_norm", (width,)), ("ffn_gate", (f["feed_forward"], width)),
                ("ffn_up", (f["feed_forward"], width)), ("ffn_down", (width, f["feed_forward"])),
            )
        ]  # fmt: skip
    return [*out, ("output_norm.weight", (width,)), ("output.weight", (f["vocabulary"], width))]


def _pool(rng: np.random.Generator) -> np.ndarray:
    blocks = np.empty((_POOL_BLOCKS, 34), np.uint8)
    blocks[:, :2] = rng.uniform(0.0001, 0.0004, _POOL_BLOCKS).astype(np.float16)[:, None].view(np.uint8)
    blocks[:, 2:] = np.clip(rng.standard_normal((_POOL_BLOCKS, 32)) * 50, -127, 127).astype(np.int8).view(np.uint8)
    return blocks


def _matrix(pool: np.ndarray, shape: tuple[int, ...], number: int) -> np.ndarray:
    count = shape[0] * shape[1] // 32
    picked = (np.arange(count) + 7919 * number) % _POOL_BLOCKS
    return pool[picked].reshape(shape[0], -1)
