"""All rules for the host of servers: memory, disks, rights and limits."""

from __future__ import annotations

from controlpanel.llamacpp.rule_types import Rule
from controlpanel.llamacpp.rules_gpu_driver import MISMATCH_RULES
from controlpanel.llamacpp.rules_host_limits import LIMIT_RULES
from controlpanel.llamacpp.rules_host_memory import MEMORY_RULES

HOST_RULES: tuple[Rule, ...] = (*MEMORY_RULES, *LIMIT_RULES, *MISMATCH_RULES)
