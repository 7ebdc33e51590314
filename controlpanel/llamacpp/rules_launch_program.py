"""Rules for a program that does not run on this host at all."""

from __future__ import annotations

from controlpanel.lib.text import N_
from controlpanel.llamacpp.rule_types import COMMON, GENERIC, Near, Rule

_ILLEGAL_TITLE = N_("This build uses instructions that this processor does not have")
_ILLEGAL_REMEDY = N_(
    "It was made for another, newer processor; the GPU is not the cause. Build it on this machine, or "
    "without “for this processor” (GGML_NATIVE = OFF), and choose that build."
)

PROGRAM_RULES = (
    Rule(
        "shared_lib_missing",
        (r"error while loading shared libraries: (?P<library>[^\s:]{1,200}): cannot open shared object",),
        N_("A library that the server needs is missing: %(library)s"),
        N_(
            "For libllama, libggml or libmtmd: build again, or keep the libraries beside the program "
            "(after “make install”, run “sudo ldconfig”). For libcudart or libcublas: install the CUDA "
            "version that the build was made with. LD_LIBRARY_PATH can name another folder."
        ),
        # Those of the driver have words of their own.
        unless=(r"libcuda\.so\.1|libnvidia-ml\.so",),
        explains=("not_executable", "program_missing"),
    ),
    Rule(
        "shared_lib_mismatch",
        (r"symbol lookup error: .{1,300}undefined symbol: (?P<symbol>\S{1,200})",),
        N_("The server found a library of another version"),
        N_(
            "Another llama.cpp is installed on the host, and its libraries are taken first. Remove it from "
            "/usr/local/lib and from LD_LIBRARY_PATH, or build again; the missing part is %(symbol)s."
        ),
        explains=("program_missing",),
    ),
    Rule(
        "glibc_too_old",
        (r"version [`'‘](?P<version>(?:GLIBC|GLIBCXX|CXXABI)_[\d.]{1,20})['’] not found",),
        N_("The build needs newer system libraries than this host has (%(version)s)"),
        N_(
            "It was made on a newer system. Build it on this host, run it in a container, or upgrade the "
            "system."
        ),
        explains=("program_missing",),
    ),
    Rule(
        "windows_dll_missing",
        (r"(?:execution cannot proceed|program can't start) because (?P<library>[\w.-]{1,100}\.dll)",),
        N_("A Windows library is missing: %(library)s"),
        N_(
            "Put %(library)s beside llama-server.exe (for libssl and libcrypto: those of the right OpenSSL "
            "version), or use a package that brings it along."
        ),
    ),
    Rule(
        "illegal_instruction",
        (
            r"Illegal instruction",
            r"received signal SIGILL",
        ),
        _ILLEGAL_TITLE,
        _ILLEGAL_REMEDY,
        explains=("crashed",),
    ),
    Rule(
        "illegal_instruction",
        (),
        _ILLEGAL_TITLE,
        _ILLEGAL_REMEDY,
        rank=COMMON,
        exit_codes=(-4, 132),
    ),
    Rule(
        "illegal_instruction",
        (r"AMX is not ready to be used!",),
        _ILLEGAL_TITLE,
        _ILLEGAL_REMEDY,
        rank=GENERIC,
        unless_near=(Near(r"\S", after=3),),
    ),
    Rule(
        "wrong_machine",
        (
            r"[Ee]xec format error",
            r"cannot execute binary file",
        ),
        N_("The program was built for another kind of machine"),
        N_("Build llama-server on this host (the file may be of another processor family, or damaged)."),
        explains=("not_executable",),
    ),
    Rule(
        "not_executable",
        (),
        N_("The program may not be run"),
        N_(
            "The file lacks the right to be executed (“chmod +x”), or lies on a disk that is mounted "
            "“noexec”. Build again, or choose another build."
        ),
        rank=COMMON,
        exit_codes=(126,),
    ),
    Rule(
        "program_missing",
        (),
        N_("The program, or a library that it needs, does not exist"),
        N_(
            "The build's folder was moved or deleted, or it was made on another system. Choose another "
            "build, or build again."
        ),
        rank=COMMON,
        exit_codes=(127,),
    ),
    Rule(
        "supervisor_timeout",
        (
            r"health check (?:failed|timed out) after (?P<time>\d+ ?\w{1,7})",
            r"Job for \S+ failed because a timeout was exceeded",
            r"systemd\[\d+\]: \S+: start operation timed out",
        ),
        N_("Another program gave up waiting for the server before the model was loaded"),
        N_(
            "Loading from a cold disk can take minutes. Raise its limit (healthCheckTimeout of llama-swap, "
            "TimeoutStartSec of systemd, the health check of the container), for example to 300 seconds."
        ),
        explains=("killed",),
        passing=True,
    ),
)
