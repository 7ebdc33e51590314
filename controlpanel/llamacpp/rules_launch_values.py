"""Rules for values that do not fit the build or the host: cache types, GPUs, the split."""

from __future__ import annotations

from collections.abc import Iterable

from controlpanel.lib.text import N_
from controlpanel.llamacpp.rule_types import Change, Found, Near, Rule
from controlpanel.llamacpp.rules_build_changes import put
from controlpanel.llamacpp.rules_launch_changes import field_of

# The help text that follows a refused value lists the types that the build has.
_HAS_TURBO = Near(r"(?:^\s{8,}|allowed values: )(?:[\w, ]{0,200}, )?turbo\d", after=10)


def _known_type(found: Found) -> Iterable[Change]:
    """Take q8_0, which each build has, for the field whose flag the log names."""
    field = field_of(found["flag"])
    return [Change(field, "q8_0")] if field else []


VALUE_RULES = (
    Rule(
        "turboquant_not_in_build",
        (r"(?:handling argument \"(?P<flag>[^\"]{1,80})\": )?Unsupported cache type: (?P<type>turbo\w*)",),
        N_("This build has no TurboQuant: it does not know the cache type %(type)s"),
        N_(
            "Choose a build of a fork with TurboQuant (often on a branch of its own, not on the main one), "
            "or another type in the fields “KV cache type K” and “KV cache type V”, such as q8_0."
        ),
        _known_type,
        unless_near=(_HAS_TURBO,),
        explains=("cache_type_unknown", "bad_value"),
    ),
    Rule(
        "cache_type_unknown",
        (r"(?:handling argument \"(?P<flag>[^\"]{1,80})\": )?Unsupported cache type: (?P<type>\S{1,40})",),
        N_("This build does not know the KV cache type %(type)s"),
        N_(
            "Choose one of the types that the log lists below in the fields “KV cache type K” and “KV cache "
            "type V”; q8_0 exists in each build."
        ),
        _known_type,
        explains=("bad_value",),
    ),
    Rule(
        "tensor_split_count",
        (r"got (?P<got>\d+) input configs, but system only has (?P<gpus>\d+) devices",),
        N_("The tensor split has %(got)s numbers, but this build sees at most %(gpus)s GPUs"),
        N_(
            "Give one number per GPU that the server sees in the field “Tensor split”, or leave it empty. "
            "CUDA_VISIBLE_DEVICES in the environment hides GPUs."
        ),
        put("tensor_split", None),
        explains=("bad_value",),
    ),
    Rule(
        "invalid_device",
        (r"invalid device: (?P<device>\S{1,80})",),
        N_("There is no GPU called %(device)s for this build"),
        N_(
            "“llama-server --list-devices” of the build names its devices (CUDA0, Vulkan0). Correct "
            "--device in the extra arguments, or take it out. No device at all: the build has no GPU "
            "support, or the environment hides the GPUs."
        ),
        explains=("bad_value",),
    ),
    Rule(
        "invalid_main_gpu",
        (r"invalid value for main_gpu: (?P<device>-?\d+)",),
        N_("The main GPU %(device)s does not exist"),
        N_(
            "Choose another number in the field “Main GPU”: they begin with 0 and count the visible GPUs "
            "only."
        ),
        put("main_gpu", None),
    ),
)
