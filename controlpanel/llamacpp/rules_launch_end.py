"""Rules for how a server ended, where no line says why."""

from __future__ import annotations

from controlpanel.lib.text import N_
from controlpanel.llamacpp.rule_types import COMMON, GENERIC, Rule

_ABORT_TITLE = N_("llama-server stopped itself at an internal check")
_ABORT_REMEDY = N_(
    "This build cannot do what the profile or the request asks, or it has a bug. Look for the text of the "
    "last lines in the project's issues, try a newer build, and try the profile without its rarer settings "
    "(speculation, quantised KV cache, split)."
)

END_RULES = (
    Rule(
        "killed",
        (),
        N_("The server was ended by force (SIGKILL)"),
        N_(
            "Most often the kernel did it because main memory ran out (“dmesg” or “journalctl -k” says "
            "so), or the limit of a container; else a person or a supervisor did. Free memory, or use a "
            "smaller model or context."
        ),
        rank=COMMON,
        exit_codes=(-9, 137),
        passing=True,
    ),
    Rule(
        "aborted",
        (
            r"GGML_ASSERT\((?P<check>.{1,300})\) failed",
            r"GGML_ABORT\(",
            r"terminate called after throwing an instance of",
        ),
        _ABORT_TITLE,
        _ABORT_REMEDY,
        rank=COMMON,
        passing=True,
    ),
    Rule(
        "aborted",
        (),
        _ABORT_TITLE,
        _ABORT_REMEDY,
        rank=GENERIC,
        exit_codes=(-6, 134),
        # A fork aborts at each stop with MTP: without knowing, silence is right.
        when=lambda facts: facts.get("stop_requested") is False,
        passing=True,
    ),
    Rule(
        "crashed",
        (r"Segmentation fault",),
        N_("llama-server crashed"),
        N_(
            "That is a bug of the build. Try a newer one, and try the profile without speculation, vision "
            "or a quantised KV cache to find what causes it."
        ),
        rank=GENERIC,
        passing=True,
    ),
    Rule(
        "crashed",
        (),
        N_("llama-server crashed"),
        N_(
            "That is a bug of the build. Try a newer one, and try the profile without speculation, vision "
            "or a quantised KV cache to find what causes it."
        ),
        rank=GENERIC,
        exit_codes=(-11, 139, -7, 135, -8, 136),
        passing=True,
    ),
    Rule(
        "model_not_loaded",
        (
            r"exiting due to model loading error",
            r"main: error: unable to load model",
            r"srv +load_model: failed to load model",
            r"failed to create[_ ]context with model",
        ),
        N_("The model could not be loaded"),
        N_(
            "The log does not say why in words that the panel knows. Read the lines above this one; more "
            "appear with “-lv 4” in the extra arguments."
        ),
        rank=GENERIC,
    ),
)
