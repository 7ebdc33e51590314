"""Settings to begin a profile with, for kinds of models and graphics cards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from controlpanel.lib.text import N_
from controlpanel.llamacpp.capabilities import Capabilities
from controlpanel.llamacpp.meanings import MEANINGS

_OF_DRAFTS = frozenset(
    {"draft_max", "draft_min", "draft_p_min", "draft_type_k", "draft_type_v"},
)


@dataclass(frozen=True)
class Template:
    """Meanings to begin with; `otherwise` names the value for builds that do not know the wanted one.

    `needs` says in words for which model and cards the numbers hold; `wants_mmproj` asks for a projector.
    """

    key: str
    name: str
    description: str
    needs: str
    settings: Mapping[str, object]
    otherwise: Mapping[str, object] = field(default_factory=dict)
    wants_mmproj: bool = False

    def settings_for(self, caps: Capabilities) -> dict[str, object]:
        """Return the settings that a build can use; without MTP those of its drafts are left out as well."""
        chosen: dict[str, object] = {}
        for key, wanted in self.settings.items():
            for value in (wanted, self.otherwise.get(key)):
                if value is not None and MEANINGS[key].problem(caps, value) is None:
                    chosen[key] = value
                    break
        if chosen.get("speculation") != "mtp":
            chosen = {key: value for key, value in chosen.items() if key not in _OF_DRAFTS}
        return chosen


_ONE_CACHE: Mapping[str, object] = {
    "gpu_layers": "all",
    "flash_attn": "on",
    "cache_type_k": "q8_0",
    "cache_type_v": "q8_0",
}
# One slot and few drafts: the fork serves no more with MTP and drafts 16 tokens unless told otherwise.
_MTP: Mapping[str, object] = {
    **_ONE_CACHE,
    "parallel": 1,
    "cache_type_v": "turbo4",
    "speculation": "mtp",
    "draft_max": 3,
    "draft_type_k": "q8_0",
    "draft_type_v": "q8_0",
    "ubatch": 512,
}
_NO_TURBO: Mapping[str, object] = {"cache_type_v": "q8_0"}

TEMPLATES: tuple[Template, ...] = (
    Template(
        "two-24gb-27b-mtp-vision",
        N_("Two 24 GB cards, 27B, MTP + vision, 200K"),
        N_(
            "One conversation of up to 204800 tokens with drafts by the model's own MTP layer and pictures. "
            "The cache is q8_0, its values turbo4 where the build has it."
        ),
        N_(
            "Two cards of 24 GB; a hybrid model of 27B with MTP such as Qwen3.5 27B, its file up to 19 GiB "
            "(4 to 5.8 bits per weight), and its projector."
        ),
        {**_MTP, "ctx_size": 204_800},
        _NO_TURBO,
        wants_mmproj=True,
    ),
    Template(
        "one-24gb-27b-mtp",
        N_("One 24 GB card, 27B at 4 bits, MTP, 64K"),
        N_("One conversation of up to 65536 tokens with drafts by the model's own MTP layer, text only."),
        N_(
            "One card of 24 GB that shows no desktop; a hybrid model of 27B with MTP such as Qwen3.5 27B, "
            "its file up to 16 GiB (Q4_K_M or smaller)."
        ),
        {**_MTP, "ctx_size": 65_536},
        _NO_TURBO,
    ),
    Template(
        "one-24gb-8b-long",
        N_("One 24 GB card, 8B, long context"),
        N_("One conversation of up to 131072 tokens, for long documents and code."),
        N_(
            "One card of 24 GB; a model of 8B that was trained for 128K, its file up to 8.5 GiB (Q8_0 or "
            "smaller)."
        ),
        {**_ONE_CACHE, "parallel": 1, "ctx_size": 131_072},
    ),
    Template(
        "one-12gb-small-vision",
        N_("One 12 GB card, small model + vision"),
        N_("One conversation of up to 32768 tokens with pictures."),
        N_(
            "One card of 12 GB; a model of up to 4B, its file up to 4.5 GiB (Q8_0 or smaller), and its "
            "projector."
        ),
        {**_ONE_CACHE, "parallel": 1, "ctx_size": 32_768},
        wants_mmproj=True,
    ),
    Template(
        "moe-experts-in-memory",
        N_("MoE model with experts in main memory"),
        N_(
            "Attention and cache on the graphics card, the experts in main memory: slower than all on the "
            "card, and much larger models. Prompts are read in larger pieces."
        ),
        N_(
            "One card of 12 GB or more, and main memory for the whole file; a model with experts such as "
            "Qwen3 30B-A3B."
        ),
        {**_ONE_CACHE, "parallel": 1, "ctx_size": 32_768, "cpu_moe": "on", "batch": 2048, "ubatch": 2048},
    ),
    Template(
        "four-slots-one-cache",
        N_("Many users: 4 slots with one shared cache"),
        N_(
            "Four conversations at the same time that share 65536 tokens: each may use what the others leave."
        ),
        N_("One card of 24 GB; a model of up to 14B, its file up to 12 GiB (Q6_K or smaller)."),
        {**_ONE_CACHE, "parallel": 4, "kv_unified": "on", "ctx_size": 65_536},
    ),
    Template(
        "cpu-small",
        N_("CPU only, small model"),
        N_("One conversation of up to 8192 tokens without a graphics card; a smaller prompt cache."),
        N_("8 GB of free main memory; a model of up to 4B, its file up to 4.5 GiB (Q8_0 or smaller)."),
        {"gpu_layers": 0, "parallel": 1, "ctx_size": 8192, "cache_ram": 1024},
    ),
)
