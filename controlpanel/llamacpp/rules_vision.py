"""Rules for vision: projectors that do not fit, pictures that a server cannot take.

Facts as in rules_launch.py; of them `mmproj` and `stop_requested` count here.
"""

from __future__ import annotations

from controlpanel.lib.text import N_
from controlpanel.llamacpp.rule_types import GENERIC, Near, Rule
from controlpanel.llamacpp.rules_build_changes import put
from controlpanel.llamacpp.rules_launch_changes import unless_stopped
from controlpanel.llamacpp.rules_quoted import unquoted

_NO_PROJECTOR = put("mmproj", None)
_EFFECTS = ("vision_not_loaded", "model_not_loaded", "model_path_wrong", "file_unreadable")
_OTHER_REASON = (
    r"Does this file exist|projector type|failed to open GGUF|cudaMalloc failed|invalid magic|mismatch"
)
_OOM_TITLE = N_("GPU memory does not suffice for the vision projector")
_OOM_REMEDY = N_(
    "Automatic fitting does not count it. Set the field “Projector on the GPU” to off, choose a smaller "
    "context, or lower “Most tokens per picture”."
)
_OFF_GPU = put("mmproj_offload", "off")

VISION_START_RULES = (
    Rule(
        "mmproj_mismatch",
        (
            r"mismatch between text model \(n_embd = (?P<text>\d+)\) and mmproj \(n_embd = (?P<mmproj>\d+)\)",
            r"you may be using wrong mmproj",
        ),
        N_("The vision projector belongs to another model"),
        N_(
            "Its width does not fit the text model. Choose the projector (mmproj) from the same repository "
            "and for the same size of the model, or none."
        ),
        _NO_PROJECTOR,
        explains=_EFFECTS,
    ),
    Rule(
        "mmproj_file_missing",
        (r"failed to load CLIP model from (?P<file>.{1,1000}?)\. Does this file exist\?",),
        N_("There is no file at the path of the vision projector"),
        N_(
            "%(file)s was moved, renamed or deleted, or may not be read. Choose the projector again, or "
            "none; in a container, check that its folder is mounted."
        ),
        _NO_PROJECTOR,
        explains=_EFFECTS,
    ),
    Rule(
        "mmproj_unknown_type",
        (
            r"unknown projector type: (?P<type>[^\s'\"]{0,60})",
            r"unable to find projector type",
        ),
        N_("This build does not know the kind of vision projector"),
        N_(
            "The projector is newer than the build. Use a newer build, or start without the projector "
            "until then."
        ),
        _NO_PROJECTOR,
        explains=(*_EFFECTS, "aborted"),
    ),
    Rule(
        "mmproj_is_text_model",
        (r"mtmd_init_from_file: error: Failed to load CLIP model from (?P<file>.{1,1000})",),
        N_("The file chosen as vision projector is no projector"),
        N_(
            "%(file)s is a text model or another file. Choose the file whose name begins with mmproj, from "
            "the repository of the model, or none."
        ),
        _NO_PROJECTOR,
        unless_near=(Near(_OTHER_REASON, before=6),),
        explains=_EFFECTS,
    ),
    Rule(
        "oom_vision_projector",
        (r"cudaMalloc failed: out of memory",),
        _OOM_TITLE,
        _OOM_REMEDY,
        _OFF_GPU,
        with_=(Near(r"\bclip_\w+: |mtmd_init_from_file|warmup: warmup with image", before=2, after=4),),
        unless_near=(Near(r"kv cache|compute pp buffers|unable to allocate", after=4),),
        explains=(*_EFFECTS, "oom_gpu", "oom_compute_buffer", "aborted"),
    ),
    Rule(
        "vision_not_loaded",
        (r"failed to load multimodal model",),
        N_("The vision projector could not be loaded"),
        N_(
            "Choose another file in the field “Vision projector”, or none. The lines above in the log say "
            "more."
        ),
        _NO_PROJECTOR,
        rank=GENERIC,
        explains=("model_not_loaded",),
    ),
)

_VISION_RUN_RULES = (
    Rule(
        "mmproj_missing",
        (r"(?:image|audio) input is not supported - hint: if this is unexpected, you may need to provide",),
        N_("A picture was sent to a server without a vision projector"),
        N_(
            "Choose the model's projector (a file whose name begins with mmproj) in the field “Vision "
            "projector” and restart the server; or send text only."
        ),
        needs_failure=False,
        passing=True,
    ),
    Rule(
        "oom_vision_encoder",
        (r"CUDA error: out of memory",),
        _OOM_TITLE,
        _OOM_REMEDY,
        _OFF_GPU,
        with_=(Near(r"processing image|encoding image|clip_image_batch_encode", before=8),),
        explains=_EFFECTS,
        passing=True,
    ),
    Rule(
        "vision_ubatch",
        (r"non-causal attention requires n_ubatch >= n_tokens",),
        N_("A picture has more tokens than the server computes at once"),
        N_("Raise “Micro-batch size” (2048 is enough for most models), or lower “Most tokens per picture”."),
        put("ubatch", 2048),
        explains=("aborted",),
        passing=True,
    ),
)

VISION_RULES: tuple[Rule, ...] = unless_stopped(*unquoted(*VISION_START_RULES, *_VISION_RUN_RULES))
