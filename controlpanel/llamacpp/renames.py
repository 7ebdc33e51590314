"""Flags of llama.cpp that got another name without sharing a spelling with it."""

from __future__ import annotations

# (what builds had earlier, what later ones have), with the value that says the same.
RENAMES: tuple[tuple[str, str], ...] = (
    ("--mmap", "--load-mode mmap"),
    ("--no-mmap", "--load-mode none"),
    ("--mlock", "--load-mode mlock"),
    ("--direct-io", "--load-mode dio"),
    ("--draft-max", "--spec-draft-n-max"),
    ("--draft-min", "--spec-draft-n-min"),
    ("--draft-p-min", "--spec-draft-p-min"),
    ("--draft-p-split", "--spec-draft-p-split"),
    ("--model-draft", "--spec-draft-model"),
    ("--hf-repo-draft", "--spec-draft-hf"),
    ("--gpu-layers-draft", "--spec-draft-ngl"),
    ("--device-draft", "--spec-draft-device"),
    ("--ctx-size-draft", "--spec-draft-ctx-size"),
    ("--threads-draft", "--spec-draft-threads"),
    ("--threads-batch-draft", "--spec-draft-threads-batch"),
    ("--cache-type-k-draft", "--spec-draft-type-k"),
    ("--cache-type-v-draft", "--spec-draft-type-v"),
    ("--checkpoint-every-n-tokens", "--checkpoint-min-step"),
    ("--swa-checkpoints", "--ctx-checkpoints"),
    ("--webui", "--ui"),
    ("--no-webui", "--no-ui"),
    ("--webui-config", "--ui-config"),
    ("--webui-config-file", "--ui-config-file"),
    ("--webui-mcp-proxy", "--ui-mcp-proxy"),
)
