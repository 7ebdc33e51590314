"""Asks a llama-server binary what it is and what it accepts."""

import hashlib
import importlib.util
import os
import tempfile
from pathlib import Path

from controlpanel.lib.words import translate
from controlpanel.llamacpp.capabilities import Capabilities, capabilities_from, why_not_a_server
from jobs.adapters.commands import CommandError, run_bounded

HELP_LIMIT = 4 * 1024 * 1024  # bytes
SECONDS = 30.0
LIBRARIES = ("libllama*", "libggml*", "libmtmd*")
BUNDLED = "panel-llama-server"


class ProbeError(Exception):
    """The file is not a llama-server that can be used here; str() says why."""


def probe_binary(path: Path) -> Capabilities:
    """Run the binary with --version, --help and --list-devices; raise ProbeError with words."""
    check_executable(path)
    with tempfile.TemporaryDirectory(prefix="panel-probe-") as empty:
        # An empty configuration folder: the host's config.ini must not change what --help says.
        env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": empty,
            "XDG_CONFIG_HOME": empty,
            "LANG": "C.UTF-8",
        }
        env |= {k: v for k, v in os.environ.items() if k.startswith(("CUDA_", "HIP_", "LD_LIBRARY_PATH"))}
        try:
            shown = {
                flag: run_bounded(
                    [str(path), flag], seconds=SECONDS, limit=HELP_LIMIT, env=env, cwd=Path(empty)
                )
                for flag in ("--help", "--version", "--list-devices")
            }
        except CommandError as error:
            raise ProbeError(str(error)) from error
    help_output = shown["--help"]
    if help_output.code < 0:
        raise ProbeError(
            f"{path.name} --help was ended by signal {-help_output.code}: {_last(help_output.stderr)}"
        )
    version, devices = shown["--version"], shown["--list-devices"]
    found = capabilities_from(
        help_output.stdout, version.stderr + version.stdout, devices.stdout if devices.code == 0 else ""
    )
    reason = why_not_a_server(found)
    if reason:
        raise ProbeError(f"{path}: {translate(reason)}")
    return found


def check_executable(path: Path) -> None:
    """Raise ProbeError when the path is no executable file."""
    if not path.is_absolute():
        raise ProbeError(f"{path} must be an absolute path")
    try:
        if path.is_dir():
            raise ProbeError(f"{path} is a folder; give the path of the llama-server file in it")
        if not path.is_file():
            raise ProbeError(f"{path} does not exist on this host")
    except OSError as error:
        raise ProbeError(f"cannot read {path}: {error.strerror}") from error
    if not os.access(path, os.X_OK):
        raise ProbeError(f"{path} may not be executed by this user")


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
