"""All rules for servers in containers: GPU access, memory, folders, images, the container engine."""

from __future__ import annotations

from controlpanel.lib.text import N_
from controlpanel.llamacpp.rule_types import COMMON, Rule

_TOOLKIT_REMEDY = N_(
    "Install nvidia-container-toolkit on the host, run “sudo nvidia-ctk runtime configure --runtime=docker” "
    "and restart Docker."
)

CONTAINER_RULES: tuple[Rule, ...] = (
    Rule(
        "container_toolkit_missing",
        (
            r"could not select device driver",
            r"unknown or invalid runtime name: nvidia",
            r"Unknown runtime specified nvidia",
            r"exec: \"?nvidia-container-runtime(?:-hook)?\"?: executable file not found",
            r"failed to discover GPU vendor from CDI",
        ),
        N_("The container engine cannot pass GPUs: the NVIDIA Container Toolkit is missing"),
        _TOOLKIT_REMEDY,
    ),
    Rule(
        "container_cdi_missing",
        (r"unresolvable CDI devices? (?P<device>\S+)", r"CDI device injection failed"),
        N_("The container engine does not know the GPU by its CDI name"),
        N_(
            "Write the list of devices again: “sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml” "
            "(after each driver update too)."
        ),
        explains=("container_toolkit_missing",),
    ),
    Rule(
        "driver_too_old",
        (r"unsatisfied condition: (?:cuda|driver) ?>= ?(?P<cuda>[\d.]+)",),
        N_("The host's NVIDIA driver is too old for this image (it asks for %(cuda)s)"),
        N_("Update the driver on the host, or use an image that was made with an older CUDA."),
    ),
    Rule(
        "container_driver_missing",
        (
            r"initialization error: load library failed: libnvidia-ml",
            r"nvidia-container-cli: .{0,80}nvml error: driver not loaded",
            r"nvidia-container-cli: .{0,80}driver rpc error",
        ),
        N_("The host's NVIDIA driver does not work, so no container gets a GPU"),
        N_("“nvidia-smi” must work on the host first: install or repair the driver there."),
    ),
    Rule(
        "container_wsl_no_adapter",
        (r"WSL environment detected but no adapters were found",),
        N_("WSL sees no GPU that a container could use"),
        N_(
            "Update the driver on Windows and WSL itself (“wsl --update”), use WSL 2, then “wsl --shutdown”. "
            "Install no Linux driver inside of WSL."
        ),
    ),
    Rule(
        "container_lost_gpu",
        (r"Failed to initialize NVML: Unknown Error",),
        N_("The container lost its GPU while it ran"),
        N_(
            "“systemctl daemon-reload” on the host took the device away; the host itself still sees it. "
            "Start a new container. For good: pass the GPU by CDI, or run “sudo nvidia-ctk system "
            "create-dev-char-symlinks --create-all”."
        ),
    ),
    Rule(
        "container_no_device_rights",
        (
            r"Failed to initialize NVML: Insufficient Permissions",
            r"bpf_prog_query\(BPF_CGROUP_DEVICE\) failed",
            r"failed to (?:add|get) device (?:rules|cgroup)",
            r"/dev/nvidia(?:ctl|-uvm|\d+): (?:Permission denied|Operation not permitted)",
        ),
        N_("The container may not use the GPU's device files"),
        N_(
            "For containers without root, set “no-cgroups = true” in the toolkit's config.toml (folder "
            "/etc/nvidia-container-runtime), or pass the GPU by CDI. Else add the user to the group of "
            "/dev/nvidia* (often “video”)."
        ),
    ),
    Rule(
        "container_without_gpu",
        (
            r"The NVIDIA Driver was not detected\.\s+GPU functionality will not be available",
            r"Use the NVIDIA Container Toolkit to start this container with GPU support",
        ),
        N_("The container was started without a GPU"),
        N_("Start it with “--gpus all” (in compose: a device of driver “nvidia” with capability “gpu”)."),
        rank=COMMON,
    ),
    Rule(
        "container_user_changed",
        (
            r"failed to open GGUF file '(?P<path>/root/[^']*)' \(.{0,20}Permission denied\)",
            r"cannot open .{0,40}(?P<path>/root/\S+?)['\"]?: Permission denied",
        ),
        N_("The container's user may not read %(path)s"),
        N_(
            "The image runs as a user that cannot enter /root. Mount the models at another path, such as "
            "/models, and use that; or start the container with “--user root”."
        ),
    ),
    Rule(
        "container_shared_memory",
        (
            r"Error while creating shared memory segment /dev/shm",
            r"/dev/shm\S*.{0,60}No space left on device",
            r"No space left on device.{0,40}/dev/shm",
            r"insufficient shared memory \(shm\)",
        ),
        N_("The container has too little shared memory (/dev/shm)"),
        N_("Start it with “--shm-size=1g” or more, or with “--ipc=host”."),
    ),
    Rule(
        "group_memory_limit",
        (
            r"\"OOMKilled\": ?true",
            r"\bReason: +OOMKilled\b",
            r"Memory cgroup out of memory: Kill(?:ed)? process \d+ \((?P<program>[^)]{1,64})\)",
        ),
        N_("The container reached its memory limit, and the kernel killed the server"),
        N_(
            "Raise the container's “--memory”, or make the prompt cache smaller. Files that are mapped into "
            "memory count too."
        ),
        passing=True,
    ),
    Rule(
        "container_wrong_architecture",
        (r"exec format error", r"no matching manifest for \S+ in the manifest list"),
        N_("The image was made for another kind of processor"),
        N_("Use an image for this host's processor (amd64 or arm64), or build it here."),
    ),
    Rule(
        "container_engine_refused",
        (
            r"permission denied while trying to connect to the Docker (?:daemon socket|API)",
            r"Got permission denied while trying to connect to the Docker",
        ),
        N_("This user may not use Docker"),
        N_("Add the user to the group “docker” and log in again, or use rootless containers."),
    ),
    Rule(
        "container_engine_down",
        (r"Cannot connect to the Docker daemon", r"failed to connect to the [Dd]ocker API"),
        N_("Docker does not run on this host"),
        N_("Start it: “sudo systemctl start docker”. “journalctl -u docker” says why it ended."),
        unless=(r"permission denied",),
        passing=True,
    ),
    Rule(
        "container_port_taken",
        (
            r"port is already allocated",
            r"failed to bind (?:host )?port.{0,100}address already in use",
            r"userland proxy: listen tcp\d? \S+ bind: address already in use",
        ),
        N_("Another program or container already uses the port"),
        N_("End it (“docker ps”, “ss -ltnp” name it), or publish the server on another port."),
        passing=True,
    ),
    Rule(
        "container_image_missing",
        (
            r"manifest (?:unknown|for \S+ not found)",
            r"pull access denied for \S+",
        ),
        N_("The container image does not exist, or may not be fetched"),
        N_(
            "Check its name and tag. Images of llama.cpp lie at ghcr.io/ggml-org/llama.cpp, with tags such "
            "as “server-cuda”; for private ones log in first."
        ),
    ),
)
