"""Asks a llama-server binary what it is and what it accepts."""

import hashlib
import importlib.util
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from controlpanel.lib.text import N_, Worded
from controlpanel.llamacpp.capabilities import Capabilities, capabilities_from, why_not_a_server
from jobs.adapters.commands import CommandError, Output, run_bounded

HELP_LIMIT = 4 * 1024 * 1024  # bytes
SECONDS = 30.0
LIBRARIES = ("libllama*", "libggml*", "libmtmd*")
BUNDLED = "panel-llama-server"


class ProbeError(Worded):
    """The file is not a llama-server that can be used here; str() says why."""


def probe_binary(path: Path) -> Capabilities:
    """Run the binary with --version, --help and --list-devices; raise ProbeError with words."""
    check_executable(path)
    try:
        shown = {flag: ask_binary([str(path), flag]) for flag in ("--help", "--version", "--list-devices")}
    except CommandError as error:
        raise ProbeError.of(error.message) from error
    help_output = shown["--help"]
    if help_output.code < 0:
        raise ProbeError(
            N_("%(name)s --help was ended by signal %(number)s: %(last)s"),
            name=path.name,
            number=-help_output.code,
            last=_last(help_output.stderr),
        )
    version, devices = shown["--version"], shown["--list-devices"]
    found = capabilities_from(
        help_output.stdout, version.stderr + version.stdout, devices.stdout if devices.code == 0 else ""
    )
    reason = why_not_a_server(found)
    if reason:
        raise ProbeError("%(path)s: %(reason)s", path=path, reason=reason)
    return found


def ask_binary(
    argv: list[str], seconds: float | None = None, environment: Mapping[str, str] | None = None
) -> Output:
    """Run a program of llama.cpp that prints something and ends; raises CommandError.

    Its configuration folder is empty: the host's config.ini must not change what it says.
    """
    with tempfile.TemporaryDirectory(prefix="panel-probe-") as empty:
        env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": empty,
            "XDG_CONFIG_HOME": empty,
            "LANG": "C.UTF-8",
        }
        env |= {k: v for k, v in os.environ.items() if k.startswith(("CUDA_", "HIP_", "LD_LIBRARY_PATH"))}
        env |= environment or {}
        return run_bounded(
            argv, seconds=SECONDS if seconds is None else seconds, limit=HELP_LIMIT, env=env, cwd=Path(empty)
        )


def check_executable(path: Path) -> None:
    """Raise ProbeError when the path is no executable file."""
    if not path.is_absolute():
        raise ProbeError(N_("%(path)s must be an absolute path."), path=path)
    try:
        if path.is_dir():
            raise ProbeError(
                N_("%(path)s is a folder: give the path of the llama-server file in it."), path=path
            )
        if not path.is_file():
            raise ProbeError(N_("%(path)s does not exist on this host."), path=path)
    except (OSError, ValueError) as error:
        raise ProbeError(N_("%(path)s cannot be read: %(why)s"), path=path, why=error) from error
    if not os.access(path, os.X_OK):
        raise ProbeError(N_("%(path)s may not be executed by the user that runs the panel."), path=path)


def fingerprint(path: Path) -> str:
    """Return a hash over name, size and mtime of the executable and its llama.cpp libraries."""
    folder = path.resolve().parent
    files = {path.resolve()}
    for pattern in LIBRARIES:
        files.update(folder.glob(pattern))
    if path.name == BUNDLED:
        spec = importlib.util.find_spec("xllamacpp")
        for place in (spec.submodule_search_locations or []) if spec else []:
            files.update(Path(place).rglob("*.so*"))
    digest = hashlib.sha256()
    for file in sorted(files):
        state = file.stat()
        digest.update(f"{file}\0{state.st_size}\0{state.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _last(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:300] if lines else ""
