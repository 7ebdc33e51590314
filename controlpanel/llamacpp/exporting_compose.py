"""A profile as a service of Docker Compose."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from controlpanel.lib.text import N_, Message
from controlpanel.llamacpp.exporting_types import PORT, Exported, ExportedText
from controlpanel.llamacpp.exporting_yaml import Value, block, quoted
from controlpanel.llamacpp.gguf import shard_paths

_IMAGE = "ghcr.io/ggml-org/llama.cpp"
# (how the build names its devices, end of the image's tag, devices of the host to hand over)
_BACKENDS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("CUDA", "server-cuda", ()),
    ("ROCm", "server-rocm", ("/dev/kfd", "/dev/dri")),
    ("Vulkan", "server-vulkan", ("/dev/dri",)),
    ("SYCL", "server-intel", ("/dev/dri",)),
    ("MUSA", "server-musa", ()),
)
_CPU = ("", "server", ())
_KEY = "${LLAMA_API_KEY:?Set it to the key that clients have to send}"
_RESTARTS = {"never": "no", "always": "unless-stopped"}
_FILE_HINT = re.compile(r"(?:FNAME|FILE)\b|\w+_FILE\b")
_LISTS = ("--lora", "--lora-scaled", "--control-vector", "--control-vector-scaled")


def compose(what: Exported) -> ExportedText:
    """Return a file with one service; files have the paths of the host inside the container too."""
    backend, tag, devices = _backend(what)
    port = what.port or PORT
    health = f"http://localhost:{port}/health"
    service: dict[str, Value] = {
        "image": f"{_IMAGE}:{tag}",
        "restart": _RESTARTS.get(what.upkeep.restart, f"on-failure:{what.upkeep.limit}"),
        "command": [word.replace("$", "$$") for word in _words(what)],
        # The one value in which Compose is to fill in a variable.
        "environment": {
            "LLAMA_API_KEY": _KEY,
            **{name: value.replace("$", "$$") for name, value in what.env.items()},
        },
        "ports": [f"127.0.0.1:{port}:{port}"],
        "volumes": [_volume(path) for path in _files(what)],
        "healthcheck": {
            "test": ["CMD", "curl", "-f", health],
            "interval": "30s",
            "timeout": "5s",
            "start_period": "15m",
        },
    }
    if what.upkeep.memory_mib is not None:
        service["mem_limit"] = f"{what.upkeep.memory_mib}m"
    if devices:
        service["devices"] = list(devices)
    if what.locks_memory:
        service["ulimits"] = {"memlock": -1}
    if backend == "CUDA":
        card: dict[str, Value] = {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
        service["deploy"] = {"resources": {"reservations": {"devices": [card]}}}
    lines = [f"# {what.title}", *block({"services": {what.label: service}})]
    return ExportedText(f"compose.{what.label}.yaml", "yaml", "\n".join(lines) + "\n", _notes(what, tag))


def _notes(what: Exported, tag: str) -> list[Message]:
    version = what.caps.version or quoted(Path(what.executable).name)
    notes = [Message(_KEY_NOTE), Message(_IMAGE_NOTE, {"image": f"{_IMAGE}:{tag}", "version": version})]
    if what.caps.turboquant or what.caps.mtp_value == "mtp":
        notes.append(Message(_FORK))
    notes.append(Message(_PATHS))
    if what.upkeep.restart == "on-failure":
        notes.append(Message(_REBOOT))
    return notes


def _backend(what: Exported) -> tuple[str, str, tuple[str, ...]]:
    """Return the backend of the build's devices, the plain processor when it has none."""
    names = [device.name for device in what.caps.devices]
    return next((entry for entry in _BACKENDS if any(name.startswith(entry[0]) for name in names)), _CPU)


def _words(what: Exported) -> Iterator[str]:
    """Yield the command; inside a container a server has to listen on all of its addresses."""
    for row in what.rows:
        if row.word == "--host":
            yield from (row.word, "0.0.0.0")
        elif row.word == "--port":
            yield from (row.word, str(what.port or PORT))
        else:
            yield from row.words


def _files(what: Exported) -> list[str]:
    """Return the files that the command names, each once, all parts of a model included."""
    found = [str(path) for path in shard_paths(Path(what.model))] if what.model else []
    if what.mmproj:
        found.append(what.mmproj)
    for row in what.rows:
        if row.flag is None or not _FILE_HINT.match(row.flag.hint):
            continue
        listed = any(name in row.flag.names for name in _LISTS)
        for value in row.values:
            found += [part.partition(":")[0] for part in value.split(",")] if listed else [value]
    return [path for path in dict.fromkeys(found) if path.startswith("/")]


def _volume(path: str) -> Value:
    inside = path.replace("$", "$$")
    return {
        "type": "bind",
        "source": inside,
        "target": inside,
        "read_only": True,
        "bind": {"create_host_path": False},
    }


_KEY_NOTE = N_(
    "Give the key that clients have to send as LLAMA_API_KEY, in the environment or in a file .env beside "
    "this one: Compose refuses to start without it."
)
_IMAGE_NOTE = N_(
    "The image %(image)s is llama.cpp's own and newer or older than the build %(version)s of the profile: "
    "a flag may be spelled otherwise there."
)
_FORK = N_(
    "The profile's build is a fork: llama.cpp's own image knows neither TurboQuant types nor the fork's word "
    "for MTP. Choose another build for this export, or an image of the fork."
)
_REBOOT = N_(
    "With restart: on-failure Docker does not start the container after a reboot of the host: write "
    "unless-stopped for that."
)
_PATHS = N_(
    "The files are mounted read-only under the paths of this host. The port is published on 127.0.0.1 only."
)
