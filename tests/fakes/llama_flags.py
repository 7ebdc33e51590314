"""What the fake llama-server is told to do, and its part without network: command line and help.

Behaviour comes from the environment (FAKE_LOAD_DELAY=2) and from a JSON file, which wins and is read again
for each request: the file named by FAKE_FLAGS, else `<executable>.flags`. `install` makes an executable with
such a file.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
VERSION = "version: 0.6.0-dev (build 11434, commit fa4e5e7)\nbuilt with GNU 12.2.0 for Linux x86_64\n"
HELP = """----- common params -----

-h,    --help, --usage                  print usage and exit
--version                               show version and build info
-c,    --ctx-size N                     size of the prompt context (default: 0, 0 = loaded from model)
                                        (env: LLAMA_ARG_CTX_SIZE)
-m,    --model FNAME                    model path to load
                                        (env: LLAMA_ARG_MODEL)

----- example-specific params -----

--host HOST                             ip address to listen (default: 127.0.0.1)
                                        (env: LLAMA_ARG_HOST)
--port PORT                             port to listen (default: 8080)
                                        (env: LLAMA_ARG_PORT)
"""
OTHER_HELP = """Usage: frobnicate [OPTION]... [FILE]...
Frobnicate FILEs.

  -v, --verbose   explain what is being done
"""
HUGE_HELP_BYTES = 100_000_000
REPLY = "This reply comes from a stand-in that was told how to fail, word by word."


@dataclass(frozen=True)
class Flags:
    """What the server does; times in seconds, counts of tokens from the first one of an answer."""

    bind_delay: float = 0.0  # before the port is opened
    load_delay: float = 0.0  # /health says 503 until then
    never_ready: bool = False  # /health says 503 for ever
    exit_after: float = -1.0  # ends by itself so long after the start; -1 = never
    exit_code: int = 1  # with this code; negative = dies by that signal
    exit_text: str = ""  # and this last text on stderr
    ignore_sigterm: bool = False
    stop_delay: float = 0.0  # between SIGTERM and the end
    flood_lines: int = 0  # log lines after the start
    flood_rate: float = 0.0  # lines per second; 0 = as fast as possible
    help: str = ""  # a file to print; or hang, huge (100 MB), other (of another program)
    version: str = VERSION
    reply: str = REPLY
    reasoning: str = ""  # comes before the reply, as reasoning
    token_delay: float = 0.0  # before each token
    prompt_delay: float = 0.0  # before the answer begins
    draft: int = 0  # drafted tokens told in timings; slots say speculative
    accepted: int = 0
    error_before: int = 0  # HTTP status instead of an answer; 503, 400, 500 ...
    error_text: str = "something is wrong inside the stand-in"
    error_after: int = -1  # an error event after so many tokens, then no [DONE]
    drop_after: int = -1  # the connection is closed after so many tokens
    hang: str = ""  # paths, separated by commas, that never answer
    wrong_json: str = ""  # paths that answer with broken JSON


def read_flags() -> Flags:
    """Flags of this moment."""
    values: dict[str, Any] = {}
    for field in fields(Flags):
        text = os.environ.get(f"FAKE_{field.name.upper()}")
        if text is not None:
            kind = type(getattr(Flags, field.name))
            values[field.name] = text not in ("", "0") if kind is bool else kind(text)
    path = Path(os.environ.get("FAKE_FLAGS") or f"{sys.argv[0]}.flags")
    if path.is_file():
        values |= json.loads(path.read_text())
    return Flags(**values)


def install(folder: Path, name: str = "llama-server", **flags: Any) -> Path:
    """An executable llama-server in `folder` with flags; `set_flags` changes them while it runs."""
    path = folder / name
    path.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from tests.fakes.fake_llama_server import main\nsys.exit(main(sys.argv[1:]))\n"
    )
    path.chmod(0o755)
    set_flags(path, **flags)
    return path


def set_flags(path: Path, **flags: Any) -> None:
    """Replaces the flags of an installed copy; later requests follow them."""
    Flags(**flags)
    temporary = path.with_name(f"{path.name}.flags.new")
    temporary.write_text(json.dumps(flags))
    temporary.replace(f"{path}.flags")


@dataclass(frozen=True)
class Options:
    """The part of llama-server's command line that changes an answer; the rest is ignored."""

    host: str
    port: int
    model: str
    alias: str
    mmproj: str
    key: str
    ctx: int
    parallel: int
    metrics: bool
    slots: bool


def read_options(argv: list[str]) -> Options:
    def last(default: str, *names: str) -> str:
        found = [value for name, value in itertools.pairwise(argv) if name in names]
        return found[-1] if found else default

    model = last("model.gguf", "-m", "--model")
    return Options(
        host=last("127.0.0.1", "--host"),
        port=int(last("8080", "--port")),
        model=model,
        alias=last(Path(model).name, "-a", "--alias"),
        mmproj=last("", "-mm", "--mmproj"),
        key=last(os.environ.get("LLAMA_API_KEY", ""), "--api-key"),
        ctx=int(last("4096", "-c", "--ctx-size")),
        parallel=int(last("1", "-np", "--parallel")),
        metrics="--metrics" in argv,
        slots="--no-slots" not in argv,
    )


def print_help(flags: Flags) -> None:
    """Writes the help to stdout; `hang` never returns."""
    match flags.help:
        case "hang":
            while True:
                signal.pause()
        case "huge":
            line = b"x" * 999 + b"\n"
            for _ in range(HUGE_HELP_BYTES // len(line)):
                sys.stdout.buffer.write(line)
        case "other":
            sys.stdout.write(OTHER_HELP)
        case "":
            sys.stdout.write(HELP)
        case path:
            sys.stdout.write(Path(path).read_text())
