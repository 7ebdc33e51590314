"""All rules for downloads of models, by whatever program."""

from __future__ import annotations

from controlpanel.llamacpp.rule_types import Rule
from controlpanel.llamacpp.rules_download_disk import DISK_RULES
from controlpanel.llamacpp.rules_download_hub import HUB_RULES
from controlpanel.llamacpp.rules_download_net import NET_RULES

DOWNLOAD_RULES: tuple[Rule, ...] = (*HUB_RULES, *DISK_RULES, *NET_RULES)
