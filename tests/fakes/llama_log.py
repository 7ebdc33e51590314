"""What the fake llama-server writes into its log, in the words of upstream and of the fork."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from tests.fakes.llama_flags import Flags, Options

START = time.monotonic()
CLEANING_UP = "srv    operator(): operator(): cleaning up before exit..."
BUILD_INFO = {"upstream": "b11434-fa4e5e7", "fork": "b9123-67f38aa53"}


class Log:
    """Lines on stderr: upstream's with their time and level, the fork's without."""

    def __init__(self, fork: bool) -> None:
        self.fork = fork

    def __call__(self, *lines: str, level: str = "I") -> None:
        for line in lines:
            self.raw(line if self.fork else f"{_stamp()} {level} {line}")

    def raw(self, text: str) -> None:
        """A text and the end of its line, without anything in front."""
        os.write(2, f"{text}\n".encode())


def _stamp() -> str:
    micro = int((time.monotonic() - START) * 1e6)
    return f"{micro // 60_000_000}.{micro // 1_000_000 % 60:02}.{micro // 1000 % 1000:03}.{micro % 1000:03}"


def opening(log: Log, options: Options) -> None:
    """Before the port is opened."""
    if not log.fork:
        log("srv  llama_server: initializing ...")
        return
    if options.unified:
        log("main: n_parallel is set to auto, using n_parallel = 4 and kv_unified = true")
    log(f"build_info: {BUILD_INFO['fork']}", "start: binding port with default address family")


def busy_port(log: Log, options: Options) -> None:
    """The last words where the port cannot be opened."""
    failed = f"start: couldn't bind HTTP server socket, hostname: {options.host}, port: {options.port}"
    if log.fork:
        log(failed, CLEANING_UP, "main: exiting due to HTTP server error")
    else:
        log(f"srv  {failed}", "srv  llama_server: exiting due to HTTP server error", level="E")


def loading(log: Log, flags: Flags, options: Options) -> None:
    """The load of the weights begins."""
    if log.fork:
        log("main: loading model")
    log(f"srv    load_model: loading model '{options.model}'")
    if log.fork:
        log("load_tensors: loading model tensors, this can take a while... (mmap = true, direct_io = false)")
        _buffers(log, flags, "load_tensors: {card:>12} model buffer size = {mib:8.2f} MiB", 0.6)


def _buffers(log: Log, flags: Flags, form: str, part: float) -> None:
    for number, size in enumerate(flags.cards.split(",") if flags.cards else []):
        log(form.format(card=f"CUDA{number}", mib=part * int(size)))


def steps(log: Log, flags: Flags, options: Options) -> Iterator[None]:
    """Writes the lines from the weights to the slots, and stops before each part."""
    mtp = options.mtp and not flags.mtp_error
    if log.fork:
        yield
        log("llama_context: constructing llama_context")
        _buffers(log, flags, "llama_kv_cache: {card:>10} KV buffer size = {mib:8.2f} MiB", 0.2)
        yield
        log("common_init_from_params: warming up the model with an empty run - please wait ...")
    if mtp:
        yield
        log(
            f"srv    load_model: loading MTP head from '{options.model}' (override_arch=qwen35_mtp)"
            if log.fork
            else "common_speculative_init_result: creating MTP draft context against the target model "
            f"'{options.model}'"
        )
    if options.mmproj:
        yield
        log(f"srv    load_model: loaded multimodal model, '{options.mmproj}'")
    yield
    if log.fork:
        log(f"srv    load_model: initializing slots, n_slots = {options.parallel}")
    else:
        unified = str(options.unified).lower()
        sizes = f"n_slots = {options.parallel}, n_ctx_slot = {options.slot_ctx}, kv_unified = '{unified}'"
        log(f"srv    load_model: initializing, {sizes}")
    if options.mtp and flags.mtp_error:
        failed = f"failed to initialize speculative decoding context: {flags.mtp_error}"
        log(f"srv    load_model: {failed}", level="E")
    if log.fork:
        _slots(log, options, mtp)


def _slots(log: Log, options: Options, mtp: bool) -> None:
    if mtp:
        log("set_mtp: MTP draft head registered (ctx_mtp=0x55d08e66aec0, n_ubatch=512, n_embd=5120)")
    for number in range(options.parallel):
        if mtp:
            log(f"slot   load_model: id  {number} | task -1 | speculative decoding context initialized")
        log(f"slot   load_model: id  {number} | task -1 | new slot, n_ctx = {options.slot_ctx}")


def listening(log: Log, url: str) -> None:
    """The model is loaded, and requests are answered."""
    if log.fork:
        log("main: model loaded", f"main: server is listening on {url}", "main: starting the main loop...")
        log("srv  update_slots: all slots are idle")
    else:
        log("srv  llama_server: model loaded", f"srv  llama_server: listening on {url}")


def answered(log: Log, flags: Flags) -> None:
    """What follows an answer: how many drafts were accepted, and what the flags say."""
    if flags.draft:
        rate = f"{flags.accepted / flags.draft:.5f} ({flags.accepted:5} accepted / {flags.draft:5} generated)"
        if log.fork:
            log(f"draft acceptance rate = {rate}")
        else:
            log(f"slot print_timing: id  0 | task 0 | draft acceptance = {rate}, mean len =  2.50")
    if flags.say:
        log.raw(flags.say)
