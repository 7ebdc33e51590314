"""All rules for the host of servers: memory, disks, rights and limits.

Facts, each unknown when it is missing: "settings" (the profile's meanings), "over_memory_limit_mib" and
"over_memory_used_mib" (of a server that was ended because it took more main memory than it may).
"""

from __future__ import annotations

from controlpanel.llamacpp.rule_types import Rule
from controlpanel.llamacpp.rules_gpu_driver import MISMATCH_RULES
from controlpanel.llamacpp.rules_host_limits import LIMIT_RULES
from controlpanel.llamacpp.rules_host_memory import MEMORY_RULES
from controlpanel.llamacpp.rules_quoted import unquoted

HOST_RULES: tuple[Rule, ...] = unquoted(*MEMORY_RULES, *LIMIT_RULES, *MISMATCH_RULES)
