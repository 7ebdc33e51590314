"""Rules for what the host lacks when it builds: memory, disk, tools, rights."""

from __future__ import annotations

from collections.abc import Iterable

from controlpanel.lib.text import N_
from controlpanel.llamacpp.rule_types import COMMON, GENERIC, Change, Found, Near, Rule
from controlpanel.llamacpp.rules_build_changes import put

_SIGKILL = (-9, 137)
_COMPILED_ANYWAY = {"f16-f16", "bf16-bf16", "q4_0-q4_0", "q8_0-q8_0", "q8_0-q4_0"}
_FA_OBJECT = r"fattn-vec-instance-(?P<k>[a-z0-9_]+)-(?P<v>[a-z0-9_]+)\.cu"


def _less_memory(found: Found) -> Iterable[Change]:
    yield Change("jobs", "half")
    if found["k"] and f"{found['k']}-{found['v']}" not in _COMPILED_ANYWAY:
        yield Change("fa_quants", "")


_OOM_TITLE = N_("The host ran out of memory while compiling")
_OOM_REMEDY = N_(
    "Each compile job takes 2 to 3 GiB of RAM, CUDA files the most. Build with half as many jobs. If that "
    "is not enough, add swap or build while no model is loaded; leave the list of flash-attention cache "
    "types empty, because each pair compiles more large files."
)

HOST_RULES = (
    Rule(
        "compile_out_of_memory",
        (
            r"fatal error: Killed signal terminated program (?P<program>\S+)",
            r"internal compiler error: Killed(?: \(program (?P<program>\w+)\)| signal)",
            r"'(?P<program>[\w+]+)' died due to signal 9\b",
            r"\bld terminated with signal 9\b",
            r"error: unable to execute command: Killed",
            r"\bout of memory allocating \d+ bytes",
            r"virtual memory exhausted",
            r": [Mm]emory exhausted",
            r"LLVM ERROR: out of memory",
            r"instance of 'std::bad_alloc'",
            r"\b(?:fork|posix_spawn|clone|mmap|cc1\w*)\S*: Cannot allocate memory",
            r"Out of memory: Killed process \d+ \((?P<program>[^)]+)\)",
            r"FAILED: \[code=137\] (?:\S*" + _FA_OBJECT + ")?",
            r"\*\*\* \[[^\]]{0,300}\] (?:Error 137|Killed)\b",
        ),
        _OOM_TITLE,
        _OOM_REMEDY,
        _less_memory,
        with_=(Near(_FA_OBJECT, before=12, after=4, required=False),),
        explains=("killed", "compiler_crashed"),
    ),
    Rule(
        "compile_out_of_memory",
        (r"^\s*Killed\s*$", r"^\S+: line \d+: +\d+ Killed\b"),
        _OOM_TITLE,
        _OOM_REMEDY,
        _less_memory,
        with_=(
            Near(r"FAILED: |^g?make(?:\[\d+\])?: \*\*\*|ninja: build stopped", after=4),
            Near(_FA_OBJECT, before=12, after=4, required=False),
        ),
        explains=("killed", "compiler_crashed"),
    ),
    Rule(
        "compile_out_of_memory",
        (r"\bBuilding (?:C|CXX|CUDA|HIP) object ",),
        _OOM_TITLE,
        _OOM_REMEDY,
        _less_memory,
        rank=COMMON,
        exit_codes=_SIGKILL,
        with_=(Near(_FA_OBJECT, before=4, after=4, required=False),),
        last=True,
        explains=("killed",),
    ),
    Rule(
        "killed",
        (),
        N_("The system ended this step by force (SIGKILL)"),
        N_(
            "Most often the kernel did it because memory ran out (“dmesg” on the host says so), or a "
            "person did. Free memory, then build again with fewer jobs."
        ),
        put("jobs", "half"),
        rank=GENERIC,
        exit_codes=_SIGKILL,
    ),
    Rule(
        "process_limit",
        (r"(?:fork|posix_spawn|clone|pthread_create|create thread)\S*: Resource temporarily unavailable",),
        N_("The host allows no more processes"),
        N_(
            "The limit of processes or threads of this user or container is reached. Build with fewer "
            "jobs, or raise the limit (ulimit -u, TasksMax, the container's pids limit)."
        ),
        put("jobs", "half"),
    ),
    Rule(
        "disk_full",
        (
            r"No space left on device",
            r"Out of diskspace",
        ),
        N_("The disk is full"),
        N_(
            "Free some space on the disk that the log names: delete old builds and downloads that nobody "
            "needs. A CUDA build takes 2 to 10 GiB. Compilers also write to the temporary folder: if /tmp "
            "is small, set TMPDIR in the panel's environment to a larger disk."
        ),
        explains=("git_transfer_broken", "git_lock", "cmake_broken_compiler"),
    ),
    Rule(
        "disk_quota",
        (r"Disk quota exceeded",),
        N_("This user's share of the disk is used up"),
        N_("Delete old builds and downloads, or have the quota of the user that runs the panel raised."),
        explains=("git_transfer_broken", "cmake_broken_compiler"),
    ),
    Rule(
        "compiler_missing",
        (r"is not a full path (?:and was not found|to an existing compiler)",),
        N_("The compiler %(compiler)s is not on this host"),
        N_(
            "Install it, or choose another host compiler in the form. An empty field takes the host's own "
            "(“apt install build-essential”)."
        ),
        put("host_compiler", ""),
        with_=(
            Near(r"\bCMAKE_(?P<lang>CXX|C)_COMPILER:", before=5),
            Near(r"^\s+(?P<compiler>[^\s:]+)\s*$", before=3),
        ),
        explains=("cmake_broken_compiler",),
    ),
    Rule(
        "compiler_missing",
        (r"nvcc fatal +: Failed to preprocess host compiler properties",),
        N_("The compiler %(compiler)s is not on this host"),
        N_(
            "nvcc needs a C++ compiler of the host. Install the one that is chosen, or choose another host "
            "compiler in the form."
        ),
        put("host_compiler", ""),
        with_=(Near(r"^\s*(?P<compiler>\S+): No such file or directory", before=6),),
        explains=("nvcc_not_found", "cmake_broken_compiler"),
    ),
    Rule(
        "compiler_missing",
        (
            r"No CMAKE_(?P<lang>CXX|C)_COMPILER could be found",
            r"CMAKE_(?:CXX|C)_COMPILER not set, after EnableLanguage",
            r"(?:^|\s)(?:g\+\+|gcc|cc|c\+\+|clang(?:\+\+)?)(?:-\d+)?: (?:command )?not found",
            r"Could not find compiler set in environment variable (?P<var>CC|CXX)",
        ),
        N_("There is no C++ compiler on this host"),
        N_("Install one (“apt install build-essential”) and build again."),
        explains=("cmake_broken_compiler",),
    ),
    Rule(
        "ninja_missing",
        (
            r"unable to find a build program corresponding to \"Ninja",
            r"\bninja: (?:command )?not found",
            r"No such file or directory: '(?:\S*/)?ninja'",
        ),
        N_("Ninja is not installed on this host"),
        N_("Install it (“apt install ninja-build”) and build again."),
        explains=("compiler_missing",),
    ),
    Rule(
        "make_missing",
        (
            r"unable to find a build program corresponding to \"Unix Makefiles",
            r"\bg?make: (?:command )?not found",
        ),
        N_("Neither Ninja nor make is installed on this host"),
        N_("Install one (“apt install ninja-build”) and build again."),
        explains=("compiler_missing",),
    ),
    Rule(
        "cmake_missing",
        (
            r"\bcmake: (?:command )?not found",
            r"No such file or directory: '(?:\S*/)?cmake'",
        ),
        N_("CMake is not installed on this host"),
        N_("Install it (“apt install cmake”) and build again."),
    ),
    Rule(
        "ccache_permission",
        (r"ccache: (?:error|FATAL|fatal): .{0,400}(?:Permission denied|Read-only file|not permitted)",),
        N_("ccache may not write to its folder"),
        N_(
            "An earlier build as root made the folder. Give it back to the user that runs the panel (“sudo "
            "chown -R” on the folder that the log names), or build without ccache. Never build with sudo."
        ),
        put("ccache", False),
        explains=("permission_denied",),
    ),
    Rule(
        "permission_denied",
        (r": Permission denied\.?\s*$", r"Read-only file system"),
        N_("A file or folder may not be written, or a program may not be run"),
        N_(
            "The user that runs the panel lacks the right to what the log names. Correct the owner of that "
            "folder (chown), or look for a disk that is mounted read-only or “noexec”."
        ),
        unless=(r"ccache: |ssh|warning: |^-- ",),
        rank=GENERIC,
    ),
    Rule(
        "clock_skew",
        (r"manifest 'build\.ninja' still dirty after \d+ tries",),
        N_("The host's clock and the times of the source files do not agree"),
        N_("Set the clock (“timedatectl”), also on the machine that keeps the folder, and build again."),
    ),
    Rule(
        "compiler_crashed",
        (
            r"internal compiler error: (?!Killed)",
            r"'(?P<program>[\w+]+)' died (?:due to signal (?!9\b)|with status )",
            r"clang frontend command failed (?:due to signal|with exit code)",
            r"LLVM ERROR: (?!out of memory)",
        ),
        N_("The compiler itself crashed"),
        N_(
            "Build again with fewer jobs. If it crashes at the same file, use another version of the "
            "compiler; if at changing files, test the host's memory (RAM)."
        ),
        rank=COMMON,
    ),
    Rule(
        "cpu_flags_unknown",
        (
            r"unrecognized command[- ]line option ['‘\"]-m(?P<flag>[\w.+=-]+)",
            r"bad value \(?['‘](?P<flag>[^'’]+)['’]\)? for ['‘]?-m(?:arch|cpu|tune)",
            r"invalid feature modifier ['‘](?P<flag>[^'’]+)",
        ),
        N_("The compiler does not know the options for this processor (%(flag)s)"),
        N_(
            "The processor is newer than the compiler. Install a newer compiler and choose it, or build "
            "without “for this processor”."
        ),
        put("native", False),
    ),
    Rule(
        "assembler_too_old",
        (r"Error: (?:no such instruction: |unsupported instruction |unknown mnemonic )",),
        N_("The assembler is too old for this processor"),
        N_(
            "The compiler uses instructions of this processor that the installed binutils do not know. "
            "Update binutils, or build without “for this processor”."
        ),
        put("native", False),
    ),
)
