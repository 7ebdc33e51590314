"""Servers of models with windows and with states: what they log is what was estimated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controlpanel.demo.tiny_vocabulary import make_vocabulary
from controlpanel.llamacpp.gguf import read_header
from controlpanel.llamacpp.memory import estimate
from controlpanel.llamacpp.memory_log import read_buffers
from controlpanel.llamacpp.memory_types import HOST
from tests.engines import running

LAYERS, WIDTH, FEED, HEADS, KV_HEADS = 12, 64, 128, 4, 2


def write_model(path: Path, architecture: str) -> None:
    """A small model of zeros: gemma3 with windows of 512 tokens, or granitehybrid with states."""
    import gguf
    import numpy

    vocabulary = make_vocabulary()
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(32_768)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED)
    writer.add_head_count(HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(len(vocabulary.tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen35")
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_types(vocabulary.types)
    writer.add_token_merges(vocabulary.merges)
    writer.add_eos_token_id(vocabulary.special["<|im_end|>"])

    def matrix(name: str, rows: int, columns: int) -> None:
        writer.add_tensor(f"{name}.weight", numpy.zeros((rows, columns), numpy.float16))

    def ones(name: str, *shape: int) -> None:
        writer.add_tensor(name, numpy.ones(shape, numpy.float32))

    def layer(block: str, head: int, norms: tuple[str, ...]) -> None:
        for name in norms:
            ones(f"{block}{name}.weight", WIDTH)
        matrix(f"{block}ffn_gate", FEED, WIDTH)
        matrix(f"{block}ffn_up", FEED, WIDTH)
        matrix(f"{block}ffn_down", WIDTH, FEED)
        if head:
            matrix(f"{block}attn_q", HEADS * head, WIDTH)
            matrix(f"{block}attn_k", KV_HEADS * head, WIDTH)
            matrix(f"{block}attn_v", KV_HEADS * head, WIDTH)
            matrix(f"{block}attn_output", WIDTH, HEADS * head)

    matrix("token_embd", len(vocabulary.tokens), WIDTH)
    ones("output_norm.weight", WIDTH)
    if architecture == "gemma3":
        head = 64
        writer.add_head_count_kv(KV_HEADS)
        writer.add_key_length(head)
        writer.add_value_length(head)
        writer.add_sliding_window(512)
        for index in range(LAYERS):
            block = f"blk.{index}."
            layer(block, head, ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"))
            ones(f"{block}attn_q_norm.weight", head)
            ones(f"{block}attn_k_norm.weight", head)
    else:
        inner, state, rank, kernel = 128, 64, 4, 4
        mixed = inner + 2 * state
        writer.add_head_count_kv([0 if index % 4 else KV_HEADS for index in range(LAYERS)])
        writer.add_ssm_conv_kernel(kernel)
        writer.add_ssm_inner_size(inner)
        writer.add_ssm_state_size(state)
        writer.add_ssm_group_count(1)
        writer.add_ssm_time_step_rank(rank)
        writer.add_float32("granitehybrid.logit_scale", 1.0)
        writer.add_rope_dimension_count(16)
        for index in range(LAYERS):
            block = f"blk.{index}."
            layer(block, 0 if index % 4 else WIDTH // HEADS, ("attn_norm", "ffn_norm"))
            if index % 4 == 0:
                continue
            matrix(f"{block}ssm_in", 2 * inner + 2 * state + rank, WIDTH)
            matrix(f"{block}ssm_out", WIDTH, inner)
            ones(f"{block}ssm_conv1d.weight", mixed, kernel)
            ones(f"{block}ssm_conv1d.bias", mixed)
            ones(f"{block}ssm_dt.bias", rank)
            ones(f"{block}ssm_a", rank, 1)
            ones(f"{block}ssm_d", rank, 1)
            ones(f"{block}ssm_norm.weight", 1, inner)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("architecture", ["gemma3", "granitehybrid"])
@pytest.mark.parametrize(
    ("flags", "settings"),
    [
        ("-c 16384", {"ctx_size": 16_384}),
        ("-c 9000 -np 3 -ub 128", {"ctx_size": 9000, "parallel": 3, "ubatch": 128}),
        (
            "-c 8000 -np 2 -kvu -fa off",
            {"ctx_size": 8000, "parallel": 2, "kv_unified": True, "flash_attn": "off"},
        ),
    ],
)
def test_caches_and_states_equal_the_log(
    tmp_path: Path, architecture: str, flags: str, settings: dict[str, Any]
) -> None:
    path = tmp_path / f"{architecture}.gguf"
    write_model(path, architecture)
    host = estimate(read_header(path), None, settings, "upstream", ()).host
    extra = ("-lv", "4", "--no-warmup", "--chat-template", "chatml")
    with running(tmp_path, "-m", path, *flags.split(), *extra) as server:
        log = server.log()
    said = read_buffers(log).by_place()[HOST]
    assert host["weights"] == pytest.approx(said["weights"], abs=0.01)
    assert host["kv"] == pytest.approx(said["kv"], abs=0.01)
    assert (host.get("recurrent") or 0) == pytest.approx(said.get("recurrent", 0), abs=0.01)
    assert ("recurrent" in host) == (architecture == "granitehybrid")
    assert (host["compute"] or 0) > said["compute"]
