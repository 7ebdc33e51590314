"""Rules for what CUDA says when a program opens a card."""

from __future__ import annotations

from controlpanel.lib.text import N_
from controlpanel.llamacpp.rule_types import Near, Rule

CUDA_START_RULES = (
    Rule(
        "nvidia_uvm",
        (
            r"failed to initialize CUDA: unknown error",
            r"\bcuInit\b.{0,40}(?:CUDA_ERROR_UNKNOWN|\b999\b)",
        ),
        N_("CUDA cannot start: the kernel module nvidia_uvm is not loaded or not usable"),
        N_(
            "Run “sudo modprobe nvidia_uvm” and have it loaded at each start; restart the host after a "
            "driver update or when it woke from sleep. In a container, pass /dev/nvidia-uvm too."
        ),
    ),
    Rule(
        "no_cuda_device",
        (
            r"(?:CUDA|CUDA error): no CUDA-capable device is detected",
            r"^No devices were found\s*$",
            r"CUDA error: invalid device ordinal",
        ),
        N_("CUDA finds no card"),
        N_(
            "“nvidia-smi” must list the card. If it does, look at CUDA_VISIBLE_DEVICES in the profile's "
            "environment; an empty or wrong value hides all cards. In a container, pass the GPU."
        ),
    ),
    Rule(
        "no_kernel_image",
        (
            r"no kernel image is available for execution on the device",
            r"has no device code compatible with CUDA arch",
            r"CUDA error: device kernel image is invalid",
        ),
        N_("The build holds no code for this card's architecture"),
        N_(
            "Build again with the card's architecture among the GPU architectures: 75 (RTX 20), 86 (RTX 30), "
            "89 (RTX 40), 120 (RTX 50). “Native” takes what the host has."
        ),
        with_=(Near(r"current device: (?P<device>\d+)", after=3, required=False),),
    ),
    Rule(
        "gpu_busy",
        (
            r"CUDA-capable device\(s\) is/are busy or unavailable",
            r"all CUDA-capable devices are busy or unavailable",
            r"device already in use by a different (?:thread|process)",
        ),
        N_("The card refuses to be used: it is busy, reserved or not licensed"),
        N_(
            "“nvidia-smi -q” shows the compute mode (it should be “Default”: “sudo nvidia-smi -c 0”) and the "
            "licence of a virtual GPU. End the program that holds the card."
        ),
        passing=True,
    ),
    Rule(
        "gpu_memory_taken",
        (r"failed to initialize CUDA: out of memory", r"\bcuDevicePrimaryCtxRetain\b.{0,60}out of memory"),
        N_("The card is so full that CUDA cannot even start on it"),
        N_(
            "Other programs took its memory: “nvidia-smi” names them. End them, or choose another card. The "
            "host's own memory may also be full."
        ),
        passing=True,
    ),
    Rule(
        "unified_memory_exhausted",
        (r"CUDA error: driver shutting down",),
        N_("CPU and GPU share their memory, and it is full"),
        N_(
            "Use a smaller model or fewer GPU layers. Before loading, drop the page cache (“sync; echo 3 | "
            "sudo tee /proc/sys/vm/drop_caches”), which counts against the same memory."
        ),
        with_=(Near(r"NV_ERR_NO_MEMORY", 40, 40),),
    ),
    Rule(
        "gpu_memory_defect",
        (r"CUDA error: uncorrectable ECC error encountered",),
        N_("The card's memory has an error that cannot be corrected"),
        N_(
            "Restart the host, so that the card replaces the bad row. Look at “nvidia-smi -q -d "
            "ECC,ROW_REMAPPER”; if it comes back, the card needs to be replaced."
        ),
        passing=True,
    ),
    Rule(
        "xid79",
        (r"CUDA error: GPU is lost", r"Unable to determine the device handle for (?:GPU|gpu)\S*"),
        N_("A card vanished from the PCIe bus"),
        N_(
            "No setting of a server mends this. Switch the host off and on; then check the power cables, the "
            "riser and the slot, the temperature, and lower the power limit (“nvidia-smi -pl”)."
        ),
        passing=True,
    ),
)
