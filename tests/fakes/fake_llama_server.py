#!/usr/bin/env python3
"""A llama-server that goes wrong on request; standard library only. See `llama_flags` for what it can do.

It takes any llama-server command line and answers /health, /props, /slots, /metrics, /v1/models and
/v1/chat/completions; each request is a line of the log, and all of them are listed at /fake/requests.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.fakes import llama_faults, llama_log
from tests.fakes.llama_flags import (
    VERSIONS,
    Flags,
    print_devices,
    print_help,
    read_flags,
    read_options,
)
from tests.fakes.llama_handler import Server
from tests.fakes.llama_log import CLEANING_UP, START, Log

FLOOD_TEXT = "printable: 你好，世界 ┌─┬─┐ │█│ ✓ äöü <b>&amp;</b>"
POLL_SECONDS = 0.02


def flood(flags: Flags, log: Log) -> None:
    begin = time.monotonic()
    for number in range(flags.flood_lines):
        if flags.flood_rate:
            time.sleep(max(0.0, begin + number / flags.flood_rate - time.monotonic()))
        log(f"flood line {number}: {FLOOD_TEXT}")


def informed(argv: list[str], flags: Flags) -> bool:
    """Answers a command line that only asks; False for one that starts a server."""
    if {"--help", "-h"} & set(argv):
        print_help(flags)
    elif "--version" in argv:
        sys.stderr.write(flags.version or VERSIONS[flags.dialect])
    elif "--list-devices" in argv:
        print_devices(flags)
    else:
        return False
    return True


def obey_signals(log: Log) -> None:
    """Ends at SIGTERM and SIGINT in the way that the flags say at that moment."""

    def stop(number: int, frame: object) -> None:
        moment = read_flags()
        if moment.ignore_sigterm:
            return
        time.sleep(moment.stop_delay)
        if moment.abort_at_stop:
            llama_faults.abort_at_stop(log)
        log(CLEANING_UP)
        os._exit(0)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)


def load(server: Server, start: int) -> None:
    """Goes through the load of a model until it is ready, or ends the process."""
    log, options, flags = server.log, server.options, read_flags()
    llama_log.loading(log, flags, options)
    if flags.crash_first and flags.exit_after < 0 and llama_faults.ends(flags, start):
        llama_faults.end(flags)
    while flags.never_ready or time.monotonic() - START < flags.load_delay:
        time.sleep(POLL_SECONDS)
        flags = read_flags()
    llama_faults.fail(flags, options, log)
    for _ in llama_log.steps(log, flags, options):
        time.sleep(flags.step_delay)
    server.loaded.set()


def main(argv: list[str]) -> int:
    flags = read_flags()
    if informed(argv, flags):
        return 0
    log, options = Log(flags.fork), read_options(argv, flags.fork)
    if lines := llama_faults.refused(flags, options):
        log.raw("\n".join(lines))
        return 1
    obey_signals(log)
    start = llama_faults.count_start()
    loaded = threading.Event()
    llama_faults.watch(loaded, start)
    llama_log.opening(log, options)
    time.sleep(flags.bind_delay)
    try:
        server = Server(options, log, loaded)
    except OSError:
        llama_log.busy_port(log, options)
        return 1
    threading.Thread(target=server.serve_forever, daemon=True).start()
    if flags.flood_lines:
        threading.Thread(target=flood, args=[flags, log], daemon=True).start()
    load(server, start)
    llama_log.listening(log, f"http://{options.host}:{server.server_port}")
    while True:
        signal.pause()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
