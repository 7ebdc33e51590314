"""Rules for the NVIDIA driver: not loaded, too old, half updated, not for this card; WSL."""

from __future__ import annotations

from controlpanel.lib.text import N_
from controlpanel.llamacpp.rule_types import COMMON, Near, Rule

_MISMATCH_TITLE = N_("The NVIDIA driver's library and its kernel module have different versions")

MISMATCH_RULES = (
    Rule(
        "driver_library_mismatch",
        (
            r"Driver/library version mismatch",
            r"API mismatch: (?:the )?client.{0,40}version",
            r"API mismatch: the client '",
        ),
        _MISMATCH_TITLE,
        N_(
            "The driver was updated while the old kernel module was loaded. Restart the host. If it comes "
            "back, two versions are installed: remove all but one, and check that DKMS built the module."
        ),
        with_=(Near(r"API mismatch: ", 5, 5, required=False),),
        explains=("driver_not_loaded",),
    ),
)

DRIVER_RULES = (
    *MISMATCH_RULES,
    Rule(
        "driver_library_mismatch",
        (
            r"unsupported display driver / cuda driver combination",
            r"forward compatibility was attempted on non supported HW",
        ),
        _MISMATCH_TITLE,
        N_(
            "Restart the host if the driver was updated. Else a libcuda.so of another version is found "
            "first: remove the package cuda-compat, or take its folder out of LD_LIBRARY_PATH (containers "
            "often bring one along)."
        ),
    ),
    Rule(
        "driver_too_old",
        (
            r"CUDA driver version is insufficient for CUDA runtime version",
            r"the provided PTX was compiled with an unsupported toolchain",
            r"unsatisfied condition: cuda ?>= ?(?P<cuda>[\d.]+)",
        ),
        N_("The NVIDIA driver is too old for the CUDA of this build"),
        N_(
            "Update the driver (“nvidia-smi” shows which CUDA it can do), or use a build that was made with "
            "an older CUDA toolkit."
        ),
    ),
    Rule(
        "driver_not_loaded",
        (
            r"couldn't communicate with the NVIDIA driver",
            r"Failed to initialize NVML: Driver Not Loaded",
            r"Module nvidia not found in directory",
            r"Failed to query NVIDIA devices\. Please ensure that the NVIDIA device files",
        ),
        N_("The NVIDIA driver is not loaded"),
        N_(
            "Try “sudo modprobe nvidia”. If that fails, the driver is not installed, or was not built for "
            "the running kernel (“dkms status”): install it again with the headers of this kernel."
        ),
    ),
    Rule(
        "driver_library_missing",
        (
            r"Failed to initialize NVML: (?:NVML )?Shared Library Not Found",
            r"(?:libcuda|libnvidia-ml)\.so\.1: cannot open shared object file",
            r"couldn't find libnvidia-ml\.so library",
        ),
        N_("The libraries of the NVIDIA driver are not found"),
        N_(
            "Install the driver on the host. In a container they come from the NVIDIA Container Toolkit: "
            "start it with “--gpus all”. Under WSL they lie in /usr/lib/wsl/lib."
        ),
    ),
    Rule(
        "cuda_stub_library",
        (r"CUDA driver is a stub library",),
        N_("The server found a placeholder instead of the driver's libcuda"),
        N_(
            "Take the toolkit's folder “stubs” out of LD_LIBRARY_PATH. Under WSL, the driver of Windows is "
            "the only one: remove Linux driver packages, so that /usr/lib/wsl/lib/libcuda.so.1 is found."
        ),
    ),
    Rule(
        "secure_boot",
        (
            r"(?:nvidia\S{0,10}|modprobe: \w+: could not insert '\w+'): Key was rejected by service",
            r"Loading of (?:unsigned module|module with unavailable key) is rejected",
        ),
        N_("Secure Boot refuses the driver's kernel module"),
        N_(
            "Enrol the key that signed the module (“sudo mokutil --import”, then confirm it at the next "
            "start), or turn off Secure Boot in the firmware."
        ),
        explains=("driver_not_loaded",),
    ),
    Rule(
        "card_not_supported",
        (
            r"installed in this system (?:and |is )?(?:is )?not supported by the",
            r"requires use of the NVIDIA open kernel modules",
            r"is not supported by open nvidia\.ko",
        ),
        N_("The installed NVIDIA driver does not support this card"),
        N_(
            "Cards of the RTX 50 series need the driver's open kernel module (package nvidia-open), cards "
            "before the RTX 20 series the proprietary one; very old cards need an older driver."
        ),
        with_=(Near(r"NVRM: ", 4, 0, required=False),),
        explains=("card_not_initialised", "driver_not_loaded"),
    ),
    Rule(
        "wsl_gpu_memory",
        (r"dxgkio_make_resident: Ioctl failed: -12\b", r"dxgkio_reserve_gpu_va: Ioctl failed: -75\b"),
        N_("Windows could not give WSL the GPU memory that was asked for"),
        N_(
            "Close programs on Windows that use the card, lower the context size, and raise the memory of "
            "WSL in .wslconfig. “wsl --shutdown” frees what is stuck."
        ),
        rank=COMMON,
    ),
)
