"""How the fake llama-server fails: starts that real builds refuse, ends, memory that it takes."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from pathlib import Path

from tests.fakes.llama_flags import Flags, Options, flags_path, read_flags, starts
from tests.fakes.llama_log import CLEANING_UP, START, Log

MIB = 1024 * 1024
LOOK_SECONDS = 0.05
KV_MIB_PER_TOKEN = 0.0625
BLACK = "The image is completely black."
# What an old build of the fork wrote without end when it was shown a picture.
BLACK_LINES = (
    "srv  process_chun: processing image...",
    "find_slot: non-consecutive token position 33 after 32 for sequence 0 with 512 new tokens",
    "find_slot: non-consecutive token position 33 after 33 for sequence 0 with 512 new tokens",
)
# A build of the fork frees memory twice when it ends after MTP.
ABORT_LINES = (
    CLEANING_UP,
    "common_memory_breakdown_print: | memory breakdown [MiB] | total   free    self   model   context |",
    "double free or corruption (!prev)",
)


def end(flags: Flags) -> None:
    """Ends the process as `exit_code` says, after the last words."""
    os.write(2, flags.exit_text.encode() + b"\n" * bool(flags.exit_text))
    if flags.exit_code >= 0:
        os._exit(flags.exit_code)
    die_by(-flags.exit_code)


def die_by(number: int) -> None:
    """Ends the process by a signal, without a core file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.kill(os.getpid(), number)
    signal.pause()


def abort_at_stop(log: Log) -> None:
    """Ends the process as a build does that is wrong about its own memory."""
    log(*ABORT_LINES[:-1])
    log.raw(ABORT_LINES[-1])
    die_by(signal.SIGABRT)


def refused(flags: Flags, options: Options) -> list[str]:
    """The lines with which the build refuses its command line at once, if it does."""
    names = ("draft-mtp", "mtp") if flags.fork else ("mtp", "draft-mtp")
    if options.spec != names[0]:
        return []
    why = (
        "unknown speculative decoding type without draft model"
        if flags.fork
        else "unknown speculative type: mtp"
    )
    return [f'error while handling argument "--spec-type": {why}']


def fail(flags: Flags, options: Options, log: Log) -> None:
    """Ends the process with the lines of a start that fails while it loads, where it does."""
    lines = _failure(flags, options)
    for line in lines:
        log(line, level="I" if line == CLEANING_UP or line.startswith("llama_context:") else "E")
    if lines:
        end(flags)


def _failure(flags: Flags, options: Options) -> list[str]:
    model = options.model
    no_context = [f"common_init_from_params: failed to create context with model '{model}'"]
    last = [f"srv    load_model: failed to load model, '{model}'"]
    if flags.bad_split and options.split.replace("/", ",") == flags.bad_split:
        first = int(flags.cards.split(",")[0]) if flags.cards else 24576
        lines = [
            *_no_room(first * 1.07),
            "llama_model_load: error loading model: unable to allocate CUDA0 buffer",
            "llama_model_load_from_file_impl: failed to load model",
            f"common_init_from_params: failed to load model '{model}'",
            *last,
        ]
    elif options.v_cache_needs_flash:
        why = "V cache quantization requires flash_attn" if flags.fork else _UPSTREAM_NEEDS_FLASH
        lines = [f"llama_init_from_model: {why}", *no_context, *last]
    elif flags.max_ctx and options.ctx > flags.max_ctx:
        lines = [
            "llama_context: constructing llama_context",
            *_no_room(options.ctx * KV_MIB_PER_TOKEN),
            "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache",
            *no_context,
            *last,
        ]
    elif flags.fork and options.mtp and options.parallel != 1:
        slots = f"MTP currently supports only n_parallel=1; got {options.parallel}"
        lines = [f"...........srv    load_model: {slots}"]
    else:
        return []
    # A process that dies by a signal has no time for last words.
    farewell = "main:" if flags.fork else "srv  llama_server:"
    return (
        lines
        if flags.exit_code < 0
        else [*lines, CLEANING_UP, f"{farewell} exiting due to model loading error"]
    )


_UPSTREAM_NEEDS_FLASH = "quantized V cache requires flash_attn to be enabled"


def _no_room(mib: float) -> list[str]:
    return [
        f"ggml_backend_cuda_buffer_type_alloc_buffer: allocating {mib:.2f} MiB on device 0: "
        "cudaMalloc failed: out of memory",
        f"alloc_tensor_range: failed to allocate CUDA0 buffer of size {int(mib * MIB)}",
    ]


def sees_black(flags: Flags, options: Options, body: bytes) -> bool:
    """Whether a request has a picture that is answered as if it were black."""
    return flags.black_images and options.mtp and bool(options.mmproj) and b'"image_url"' in body


def count_start() -> int:
    """The number of this start of an installed copy, from 1; 0 for a process without a flags file."""
    path = flags_path()
    if not path.is_file():
        return 0
    program = path.with_name(path.name.removesuffix(".flags"))
    number = starts(program) + 1
    Path(f"{program}.starts").write_text(str(number))
    return number


def ends(flags: Flags, start: int) -> bool:
    """Whether this start is one of those that end by themselves."""
    return not flags.crash_first or start <= flags.crash_first


def watch(loaded: threading.Event, start: int) -> None:
    """Follows the flags in a thread: when to end, and how much memory to hold."""
    threading.Thread(target=_watch, args=[loaded, start], daemon=True).start()


def _watch(loaded: threading.Event, start: int) -> None:
    blocks: list[bytearray] = []
    held = 0.0
    while True:
        flags = read_flags()
        if 0 <= flags.exit_after <= time.monotonic() - START and ends(flags, start):
            end(flags)
        if held < flags.memory_mib and loaded.is_set():
            more = flags.memory_mib - held
            if flags.memory_rate:
                more = min(more, flags.memory_rate * LOOK_SECONDS)
            blocks.append(bytearray(b"x") * int(more * MIB))
            held += more
        time.sleep(LOOK_SECONDS)
