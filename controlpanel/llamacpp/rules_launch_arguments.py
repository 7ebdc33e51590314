"""Rules for flags that a build does not know, and for values that it refuses whatever the flag."""

from __future__ import annotations

from controlpanel.lib.text import N_
from controlpanel.llamacpp.rule_types import COMMON, Near, Rule
from controlpanel.llamacpp.rules_launch_changes import unset_flag

_HANDLING = r"error while handling argument \"(?P<flag>[^\"]{1,80})\": "
_REMOVED_REMEDY = N_(
    "Write “%(use)s” in the extra arguments instead of %(flag)s, or better use the field of the form that "
    "means the same: it is spelled as the build wants it."
)

ARGUMENT_RULES = (
    Rule(
        "removed_argument",
        (_HANDLING + r"the argument has been removed",),
        N_("This build no longer has the option %(flag)s"),
        _REMOVED_REMEDY,
        unset_flag,
        with_=(Near(r"\buse (?P<use>-\S.{0,200}?)\s*$", after=2),),
        explains=("unknown_argument", "bad_value"),
    ),
    Rule(
        "removed_argument",
        (_HANDLING + r"the argument has been removed(?:\. use (?P<use>-\S.{0,200}?))?\s*$",),
        N_("This build no longer has the option %(flag)s"),
        N_(
            "Take %(flag)s out of the extra arguments. The lines below in the log say what took its place; "
            "the form's own fields are spelled as the build wants them."
        ),
        unset_flag,
        explains=("unknown_argument", "bad_value"),
    ),
    Rule(
        "removed_argument",
        (r"error: invalid argument: (?P<flag>-dio|-ndio|--(?:no-)?(?:direct-io|mmap|webui)|--mlock)\s*$",),
        N_("This build no longer has the option %(flag)s"),
        N_(
            "Take %(flag)s out of the extra arguments and set the field “Load mode” (it replaced mmap, "
            "mlock and direct-io; --webui is now --ui). If the field is set already, read the build's "
            "options again on its page, so that the panel spells it rightly."
        ),
        unset_flag,
        explains=("unknown_argument",),
    ),
    Rule(
        "unknown_argument",
        (
            r"error: invalid argument: (?P<flag>\S{1,80})",
            r"error: unknown argument: (?P<flag>\S{1,80})",
        ),
        N_("This build does not know the option %(flag)s"),
        N_(
            "Look for a typing error in the extra arguments, or for another spelling in the build's list of "
            "options. If another build has the option, choose that build; else take %(flag)s out."
        ),
        unset_flag,
    ),
    Rule(
        "value_missing",
        (_HANDLING + r"expected value for argument",),
        N_("The option %(flag)s needs a value"),
        N_(
            "Write the value behind %(flag)s in the extra arguments (older builds took some options without "
            "one: today it is “-fa on”), or use the form's own field for it."
        ),
        unset_flag,
        explains=("bad_value",),
    ),
    Rule(
        "bad_environment",
        (r"error while handling environment variable \"(?P<name>[^\"]{1,80})\": (?P<why>.{1,200})",),
        N_("The environment variable %(name)s has a value that the build refuses"),
        N_(
            "Correct or remove %(name)s in the field “Environment”, or in the environment of the panel's "
            "service, from which servers inherit it. The build says: %(why)s"
        ),
    ),
    Rule(
        "argument_file_missing",
        (_HANDLING + r"(?:error: )?failed to open file '(?P<file>[^']{1,1000})'",),
        N_("The file given with %(flag)s does not exist or cannot be read"),
        N_(
            "Look for a typing error in the path %(file)s and give the user that runs the panel the right to "
            "read it, or take %(flag)s out of the extra arguments."
        ),
        explains=("bad_value",),
    ),
    Rule(
        "lora_failed",
        (
            r"failed to apply lora adapter '(?P<file>[^']{1,1000})'",
            r"failed to load lora adapter '(?P<file>[^']{1,1000})'",
        ),
        N_("A LoRA adapter cannot be loaded"),
        N_(
            "Check that %(file)s exists, is a GGUF file, and was made for this very model; or take it out of "
            "the extra arguments."
        ),
        explains=("model_path_wrong", "file_unreadable", "not_gguf", "model_not_loaded"),
    ),
    Rule(
        "chat_template_wrong",
        (
            r"chat template parsing error: (?P<why>.{0,200})",
            r"the supplied chat template is not supported",
        ),
        N_("The chat template cannot be used"),
        N_(
            "The template of the model's file, or the one in the extra arguments, has a mistake that this "
            "build does not accept. Name another with --chat-template or --chat-template-file in the extra "
            "arguments, or use a newer build."
        ),
        explains=("bad_value",),
    ),
    Rule(
        "bad_value",
        (_HANDLING + r"(?P<why>\S.{0,200})",),
        N_("The build refuses the value of the option %(flag)s"),
        N_(
            "Correct the value in the form or in the extra arguments. The build says: %(why)s. Below it, the "
            "log lists what the option takes."
        ),
        unset_flag,
        rank=COMMON,
    ),
)
