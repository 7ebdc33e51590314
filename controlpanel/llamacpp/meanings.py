"""The fields of a profile: what each means, and how a build spells it.

A profile stores meanings; a new field is one entry in the tuple of its group.
"""

from __future__ import annotations

from dataclasses import replace

from controlpanel.lib.text import N_
from controlpanel.llamacpp.meaning_kinds import Meaning
from controlpanel.llamacpp.meanings_memory import CONTEXT_FIELDS, GPU_FIELDS
from controlpanel.llamacpp.meanings_sampling import ROPE_FIELDS, SAMPLING_FIELDS
from controlpanel.llamacpp.meanings_serving import (
    LOG_FIELDS,
    SERVING_FIELDS,
    SPECULATION_FIELDS,
    VISION_FIELDS,
)

# (key, title, fields); a command line has its flags in the same order.
_GROUPS: tuple[tuple[str, str, tuple[Meaning, ...]], ...] = (
    ("context", N_("Context and KV cache"), CONTEXT_FIELDS),
    ("gpus", N_("GPUs and split"), GPU_FIELDS),
    ("speculation", N_("Speculation (MTP)"), SPECULATION_FIELDS),
    ("vision", N_("Vision"), VISION_FIELDS),
    ("serving", N_("Loading and serving"), SERVING_FIELDS),
    ("sampling", N_("Sampling defaults"), SAMPLING_FIELDS),
    ("rope", N_("Longer context (RoPE)"), ROPE_FIELDS),
    ("logging", N_("Log"), LOG_FIELDS),
)

GROUPS: tuple[tuple[str, str], ...] = tuple((key, title) for key, title, _ in _GROUPS)
MEANINGS: dict[str, Meaning] = {
    meaning.key: replace(meaning, group=key) for key, _, fields in _GROUPS for meaning in fields
}
