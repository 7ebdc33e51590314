"""All rules for building llama.cpp on Linux, from the fetch to the last link."""

from __future__ import annotations

import dataclasses

from controlpanel.llamacpp.rule_types import Rule
from controlpanel.llamacpp.rules_build_cmake import CMAKE_RULES
from controlpanel.llamacpp.rules_build_compile import COMPILE_RULES
from controlpanel.llamacpp.rules_build_cuda import CUDA_RULES
from controlpanel.llamacpp.rules_build_git import GIT_RULES
from controlpanel.llamacpp.rules_build_host import HOST_RULES
from controlpanel.llamacpp.rules_build_packages import PACKAGE_RULES
from controlpanel.llamacpp.rules_build_toolkit import TOOLKIT_RULES

# A compiler quotes the source line that it complains of: its words are no message.
_QUOTED = r"^\s*(?:\d+ +)?\|"

BUILD_RULES: tuple[Rule, ...] = tuple(
    dataclasses.replace(rule, unless=(*rule.unless, _QUOTED))
    for rule in (
        *GIT_RULES,
        *CMAKE_RULES,
        *PACKAGE_RULES,
        *CUDA_RULES,
        *TOOLKIT_RULES,
        *HOST_RULES,
        *COMPILE_RULES,
    )
)
