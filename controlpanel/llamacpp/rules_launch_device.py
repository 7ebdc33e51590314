"""Rules for GPUs that a server does not get, or cannot use."""

from __future__ import annotations

import dataclasses

from controlpanel.lib.text import N_
from controlpanel.llamacpp.rule_types import COMMON, Rule
from controlpanel.llamacpp.rules_gpu_cuda import CUDA_START_RULES
from controlpanel.llamacpp.rules_gpu_driver import DRIVER_RULES
from controlpanel.llamacpp.rules_launch_changes import NOTE

# What follows when CUDA does not start.
_EFFECTS = ("cuda_not_initialized", "aborted", "cpu_only_build")

DEVICE_RULES = (
    *(
        dataclasses.replace(rule, explains=(*rule.explains, *_EFFECTS))
        for rule in (*DRIVER_RULES, *CUDA_START_RULES)
    ),
    Rule(
        "cuda_not_initialized",
        (r"failed to initialize CUDA: (?P<why>.{1,120})",),
        N_("CUDA cannot be used: %(why)s"),
        N_(
            "The server runs without the GPU, if at all. Check “nvidia-smi” on the host; after an update of "
            "the driver, restart the host. In a container, check that the GPUs are passed into it."
        ),
        rank=COMMON,
        needs_failure=False,
        explains=("cpu_only_build",),
    ),
    Rule(
        "cpu_only_build",
        (
            r"no usable GPU found, --gpu-layers option will be ignored",
            r"compiled without GPU support",
        ),
        N_("The server runs on the CPU alone: this build found no GPU"),
        N_(
            "It was most likely built without GPU support. Build it with the backend CUDA and choose that "
            "build; if it has it, check “nvidia-smi” and CUDA_VISIBLE_DEVICES."
        ),
        rank=NOTE,
        needs_failure=False,
        when=lambda facts: facts.get("gpus") != 0,
        passing=True,
    ),
)
