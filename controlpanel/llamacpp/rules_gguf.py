"""All rules for model files that a server cannot load."""

from __future__ import annotations

from controlpanel.llamacpp.rule_types import Rule
from controlpanel.llamacpp.rules_gguf_file import FILE_RULES
from controlpanel.llamacpp.rules_gguf_model import MODEL_RULES, PART_RULES

GGUF_RULES: tuple[Rule, ...] = (*FILE_RULES, *PART_RULES, *MODEL_RULES)
