"""All rules for GPUs: their driver, what CUDA says when it starts, the kernel's and the card's messages."""

from __future__ import annotations

from controlpanel.llamacpp.rule_types import Rule
from controlpanel.llamacpp.rules_gpu_card import CARD_RULES
from controlpanel.llamacpp.rules_gpu_cuda import CUDA_START_RULES
from controlpanel.llamacpp.rules_gpu_driver import DRIVER_RULES
from controlpanel.llamacpp.rules_gpu_xid import XID_RULES
from controlpanel.llamacpp.rules_quoted import unquoted

GPU_RULES: tuple[Rule, ...] = unquoted(*DRIVER_RULES, *CUDA_START_RULES, *XID_RULES, *CARD_RULES)
