"""What the fake llama-server is told to do, and its part without network: command line and help.

Behaviour comes from the environment (FAKE_LOAD_DELAY=2) and from a JSON file, which wins and is read again
for each request and every 50 ms: the file named by FAKE_FLAGS, else `<executable>.flags`. `install` makes an
executable with such a file, which a build of the panel can name.
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
FORK_HELP = ROOT / "tests" / "data" / "help" / "help-fork.txt"
VERSIONS = {
    "upstream": "version: 0.6.0-dev (build 11434, commit fa4e5e7)\nbuilt with GNU 12.2.0 for Linux x86_64\n",
    "fork": "version: 9123 (67f38aa53)\nbuilt with GNU 12.2.0 for Linux x86_64\n",
}
PLAIN_CACHE = ("f32", "f16", "bf16")
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

    # The program.
    dialect: str = "upstream"  # or fork: help, version, what it calls MTP, and the lines of its log
    help: str = ""  # a file to print; or hang, huge (100 MB), other (of another program)
    version: str = ""  # instead of the dialect's
    cards: str = (
        ""  # pretended cards by their MiB, such as 24576,24576; for --list-devices and the fork's log
    )
    # The start.
    bind_delay: float = 0.0  # before the port is opened
    load_delay: float = 0.0  # /health says 503 until then
    step_delay: float = 0.0  # before each line of the log that follows the load: context, MTP, vision, slots
    never_ready: bool = False  # /health says 503 for ever
    max_ctx: int = 0  # a longer context has no room: the KV cache fails as on a card that is full
    bad_split: str = ""  # this --tensor-split fails: the weights of device 0 have no room
    mtp_error: str = ""  # the server goes on without MTP, for this reason
    # The end.
    exit_after: float = -1.0  # ends by itself so long after the start; -1 = never
    exit_code: int = 1  # with this code, as do failed starts; negative = dies by that signal
    exit_text: str = ""  # and this last text on stderr
    crash_first: int = 0  # only so many first starts end: at `exit_after` if given, else while they load
    ignore_sigterm: bool = False
    stop_delay: float = 0.0  # between SIGTERM and the end
    abort_at_stop: bool = False  # SIGTERM ends it by SIGABRT, as builds of the fork do after MTP
    # What it takes and writes.
    memory_mib: float = 0.0  # main memory that it takes once it is ready
    memory_rate: float = 0.0  # MiB per second until it has them; 0 = at once
    flood_lines: int = 0  # log lines after the start
    flood_rate: float = 0.0  # lines per second; 0 = as fast as possible
    say: str = ""  # written into the log after each answer, as it is
    # Answers.
    reply: str = REPLY
    reasoning: str = ""  # comes before the reply, as reasoning
    token_delay: float = 0.0  # before each token
    prompt_delay: float = 0.0  # before the answer begins
    draft: int = 0  # drafted tokens told in timings and in the log; slots say speculative
    accepted: int = 0
    black_images: bool = False  # with MTP and a projector pictures are seen as black, as by an old fork
    error_before: int = 0  # HTTP status instead of an answer; 503, 400, 500 ...
    error_text: str = "something is wrong inside the stand-in"
    error_after: int = -1  # an error event after so many tokens, then no [DONE]
    drop_after: int = -1  # the connection is closed after so many tokens
    hang: str = ""  # paths, separated by commas, that never answer
    sleeping: bool = False  # /props says so
    wrong_json: str = ""  # paths that answer with broken JSON

    @property
    def fork(self) -> bool:
        return self.dialect == "fork"


def flags_path() -> Path:
    """Where this process finds its flags."""
    return Path(os.environ.get("FAKE_FLAGS") or f"{sys.argv[0]}.flags")


def read_flags() -> Flags:
    """Flags of this moment."""
    values: dict[str, Any] = {}
    for field in fields(Flags):
        text = os.environ.get(f"FAKE_{field.name.upper()}")
        if text is not None:
            kind = type(getattr(Flags, field.name))
            values[field.name] = text not in ("", "0") if kind is bool else kind(text)
    path = flags_path()
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


def starts(path: Path) -> int:
    """How often an installed copy was started as a server."""
    counter = Path(f"{path}.starts")
    return int(counter.read_text()) if counter.is_file() else 0


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
    unified: bool
    metrics: bool
    slots: bool
    spec: str
    split: str
    flash: str
    cache_v: str

    @property
    def slot_ctx(self) -> int:
        return self.ctx if self.unified else self.ctx // self.parallel

    @property
    def mtp(self) -> bool:
        return self.spec in ("mtp", "draft-mtp")

    @property
    def v_cache_needs_flash(self) -> bool:
        return self.flash in ("off", "0", "disabled") and self.cache_v not in PLAIN_CACHE


def read_options(argv: list[str], fork: bool = False) -> Options:
    """The options of a command line; of the fork, slots that nobody counted are four with one cache."""

    def last(default: str, *names: str) -> str:
        found = [value for name, value in itertools.pairwise(argv) if name in names]
        return found[-1] if found else default

    model = last("model.gguf", "-m", "--model")
    parallel = int(last("-1" if fork else "1", "-np", "--parallel"))
    return Options(
        host=last("127.0.0.1", "--host"),
        port=int(last("8080", "--port")),
        model=model,
        alias=last(Path(model).name, "-a", "--alias"),
        mmproj=last("", "-mm", "--mmproj"),
        key=last(os.environ.get("LLAMA_API_KEY", ""), "--api-key"),
        ctx=int(last("4096", "-c", "--ctx-size")),
        parallel=4 if parallel < 0 else parallel,
        unified=parallel < 0,
        metrics="--metrics" in argv,
        slots="--no-slots" not in argv,
        spec=last("none", "--spec-type"),
        split=last("", "-ts", "--tensor-split"),
        flash=last("auto", "-fa", "--flash-attn"),
        cache_v=last("f16", "-ctv", "--cache-type-v"),
    )


def print_devices(flags: Flags) -> None:
    """Writes what --list-devices finds."""
    cards = [int(size) for size in flags.cards.split(",") if size]
    lines = [
        f"  CUDA{number}: NVIDIA GeForce RTX 3090 ({size} MiB, {size - 300} MiB free)\n"
        for number, size in enumerate(cards)
    ]
    sys.stdout.write("Available devices:\n" + ("".join(lines) or "  (none)\n"))


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
            sys.stdout.write(FORK_HELP.read_text() if flags.fork else HELP)
        case path:
            sys.stdout.write(Path(path).read_text())
