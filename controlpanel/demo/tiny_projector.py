"""The vision projector of the tiny model: mean colours of patches, and one detector per colour."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from controlpanel.demo.tiny_vocabulary import COLOUR, IMAGE, WIDTH

VISION_WIDTH, PATCH, FEED_FORWARD, MERGE, IMAGE_SIZE = 64, 16, 64, 2, 128


def write_projector(path: Path, description: str, license_name: str) -> None:
    """Writes the GGUF file."""
    import gguf
    import numpy as np

    writer = gguf.GGUFWriter(path, "clip")
    writer.add_description(description)
    writer.add_type("mmproj")
    writer.add_name("Tiny vision test projector")
    writer.add_license(license_name)
    writer.add_file_type(int(gguf.LlamaFileType.ALL_F32))
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", "qwen3vl_merger")
    writer.add_bool("clip.use_gelu", True)
    for name, number in {
        "image_size": IMAGE_SIZE,
        "patch_size": PATCH,
        "embedding_length": VISION_WIDTH,
        "feed_forward_length": FEED_FORWARD,
        "projection_dim": WIDTH,
        "block_count": 1,
        "spatial_merge_size": MERGE,
        "attention.head_count": 2,
    }.items():
        writer.add_uint32(f"clip.vision.{name}", number)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-6)
    writer.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
    writer.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])
    writer.add_array("clip.vision.is_deepstack_layers", [False])

    def f32(name: str, values: Any) -> None:
        writer.add_tensor(name, np.ascontiguousarray(values, np.float32))

    def linear(name: str, weights: Any) -> None:
        f32(f"{name}.weight", weights)
        f32(f"{name}.bias", np.zeros(len(weights)))

    # The first three dimensions of a patch are its mean red, green and blue, in [-1, 1].
    patches = np.zeros((VISION_WIDTH, 3, PATCH, PATCH))
    for channel in range(3):
        patches[channel, channel] = 0.5 / (PATCH * PATCH)
    f32("v.patch_embd.weight.1", patches)
    linear("v.patch_embd", patches)
    f32("v.position_embd.weight", np.zeros(((IMAGE_SIZE // PATCH) ** 2, VISION_WIDTH)))

    random = np.random.default_rng(1)
    linear("v.blk.0.attn_qkv", random.normal(0, 0.02, (3 * VISION_WIDTH, VISION_WIDTH)))
    linear("v.blk.0.attn_out", np.zeros((VISION_WIDTH, VISION_WIDTH)))
    linear("v.blk.0.ffn_up", random.normal(0, 0.02, (FEED_FORWARD, VISION_WIDTH)))
    linear("v.blk.0.ffn_down", np.zeros((VISION_WIDTH, FEED_FORWARD)))
    for norm in ("v.blk.0.ln1", "v.blk.0.ln2"):
        f32(f"{norm}.weight", np.ones(VISION_WIDTH))
        f32(f"{norm}.bias", np.zeros(VISION_WIDTH))

    # Each hidden unit of the projector detects one colour in the mean of four patches; 10 at its best match.
    hidden = MERGE * MERGE * VISION_WIDTH
    detect, threshold = np.zeros((hidden, hidden)), np.zeros(hidden)
    project, constant = np.zeros((WIDTH, hidden)), np.zeros(WIDTH)
    detectors = (
        ((-1, -1, -1), -1.5, 1.5),
        ((1, 1, 1), -1.5, 1.5),
        ((1, -0.5, -0.5), -1, 1),
        ((-0.5, 1, -0.5), -1, 1),
        ((-0.5, -0.5, 1), -1, 1),
    )
    for unit, (weights, bias, best) in enumerate(detectors):
        for patch in range(MERGE * MERGE):
            start = patch * VISION_WIDTH
            detect[unit, start : start + 3] = np.array(weights) * 10 / best / (MERGE * MERGE)
        threshold[unit] = bias * 10 / best
        project[COLOUR + unit, unit] = 0.1
    constant[IMAGE] = 1
    f32("mm.0.weight", detect)
    f32("mm.0.bias", threshold)
    f32("mm.2.weight", project)
    f32("mm.2.bias", constant)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
