"""All rules for a llama-server that does not start, or starts otherwise than its profile says.

Facts that decide between causes and make a change fit, all optional: `settings` (the profile's meanings, as
in meanings.py), `dialect` ("fork" or "upstream"), `mtp_value` (what the build calls MTP), `port` (number),
`port_fixed` and `mmproj` (whether the profile has one), `gpus` (how many the server sees),
`model_mtp_heads` (number, None when unknown), `stop_requested` (then nothing is a failure).
"""

from __future__ import annotations

from controlpanel.llamacpp.rule_types import Rule
from controlpanel.llamacpp.rules_gguf import GGUF_RULES
from controlpanel.llamacpp.rules_launch_arguments import ARGUMENT_RULES
from controlpanel.llamacpp.rules_launch_changes import unless_stopped
from controlpanel.llamacpp.rules_launch_context import CONTEXT_RULES
from controlpanel.llamacpp.rules_launch_device import DEVICE_RULES
from controlpanel.llamacpp.rules_launch_end import END_RULES
from controlpanel.llamacpp.rules_launch_files import FILE_RULES
from controlpanel.llamacpp.rules_launch_memory import MEMORY_RULES
from controlpanel.llamacpp.rules_launch_port import PORT_RULES
from controlpanel.llamacpp.rules_launch_program import PROGRAM_RULES
from controlpanel.llamacpp.rules_launch_values import VALUE_RULES
from controlpanel.llamacpp.rules_mtp import MTP_START_RULES
from controlpanel.llamacpp.rules_vision import VISION_START_RULES

# A missing file may be a projector's: the rules of a launch tell which.
_OWN_WORDS = ("file_not_found",)

LAUNCH_RULES: tuple[Rule, ...] = unless_stopped(
    *ARGUMENT_RULES,
    *VALUE_RULES,
    *FILE_RULES,
    *(rule for rule in GGUF_RULES if rule.cause_key not in _OWN_WORDS),
    *MEMORY_RULES,
    *CONTEXT_RULES,
    *PORT_RULES,
    *DEVICE_RULES,
    *PROGRAM_RULES,
    *MTP_START_RULES,
    *VISION_START_RULES,
    *END_RULES,
)
