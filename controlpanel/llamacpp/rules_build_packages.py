"""Rules for what a source needs beside the compiler: packages, backends' kits, downloads."""

from __future__ import annotations

from controlpanel.lib.text import N_
from controlpanel.llamacpp.rule_types import COMMON, GENERIC, Near, Rule
from controlpanel.llamacpp.rules_build_changes import define

_UI_TITLE = N_("The files of the web interface could not be provided")
_UI_REMEDY = N_(
    "The build wanted to make or download the built-in web page of llama-server. Build without it "
    "(LLAMA_BUILD_UI = OFF; older sources: LLAMA_BUILD_WEBUI): this panel has pages of its own. Or install "
    "Node.js and npm on the host. CUDA has nothing to do with it."
)

PACKAGE_RULES = (
    Rule(
        "missing_libcurl",
        (
            r"Hint: to disable this feature, set -DLLAMA_CURL=OFF",
            r"^\s+Could NOT find CURL \(missing: ",
            r"fatal error: '?curl/curl\.h'?(?::| file not found)",
            r"cannot find -lcurl\b",
            r"undefined reference to [`'‘]curl_\w+",
        ),
        N_("libcurl's development files are missing"),
        N_(
            "Install them (“apt install libcurl4-openssl-dev”), or build without libcurl (LLAMA_CURL = "
            "OFF): the panel downloads models by itself."
        ),
        define(("LLAMA_CURL", "OFF")),
        with_=(Near(r"^(?:CMake Error at |-- Could NOT find CURL)", before=2, required=False),),
        explains=("missing_package", "missing_header", "missing_library", "undefined_reference"),
    ),
    Rule(
        "glslc_missing",
        (
            r"Could NOT find Vulkan \(missing: glslc\)",
            r"\bglslc: (?:command )?not found",
            r"Could not find glslc",
        ),
        N_("glslc, the shader compiler of Vulkan, is missing"),
        N_("Install it (“apt install glslc”, on older systems the Vulkan SDK of LunarG) and build again."),
        explains=("missing_package",),
        unless=(r"^-- Could NOT",),
    ),
    Rule(
        "vulkan_missing",
        (
            r"Could NOT find Vulkan \(missing: (?P<missing>Vulkan_[^)]*)",
            r"configuration file provided by \"SPIRV-Headers\"",
            r"fatal error: '?(?P<missing>(?:vulkan|spirv)/[\w./]+)'?(?::| file not found)",
        ),
        N_("The development files of Vulkan are missing"),
        N_(
            "Install them (“apt install libvulkan-dev glslc spirv-headers”, or the Vulkan SDK of LunarG), "
            "or choose another backend."
        ),
        explains=("missing_package", "missing_header", "glslc_missing", "fork_source_bug"),
        unless=(r"^-- Could NOT",),
    ),
    Rule(
        "hip_missing",
        (
            r"Failed to find ROCm root directory",
            r"No CMAKE_HIP_COMPILER could be found",
            r"configuration file provided by \"(?:hip|hipblas|rocblas|rocwmma)\"",
            r"fatal error: '?(?:hip|hipblas|rocblas)/[\w./]+'?(?::| file not found)",
            r"\bhipcc: (?:command )?not found",
            r"error: cannot find (?:ROCm|HIP) (?:device library|runtime)",
            r"Failed to find HIP compiler",
        ),
        N_("ROCm (HIP) is missing, or a part of it"),
        N_(
            "Install ROCm 6.1 or newer with its development files (hip, hipblas, rocblas) as AMD "
            "describes, or choose another backend: Vulkan also works on AMD cards."
        ),
        explains=("missing_package", "missing_header", "fork_source_bug", "cmake_broken_compiler"),
    ),
    Rule(
        "hip_too_old",
        (r"At least ROCM/HIP V(?P<wanted>[\d.]+) is required",),
        N_("ROCm is too old: this source needs %(wanted)s"),
        N_("Install a newer ROCm, or choose the backend Vulkan."),
    ),
    Rule(
        "ui_assets_build",
        (
            r"\bllama-ui-embed failed",
            r"missing required asset",
            r"CMake Error at \S*ui-assets\.cmake",
            r"UI: empty file: ",
            r"No rule to make target '[^']*(?:tools/(?:server|ui)/(?:public|dist|webui)|index\.html)[^']*'",
            r"'[^']*index\.html[^']*', needed by '[^']*', missing and no known rule",
        ),
        _UI_TITLE,
        _UI_REMEDY,
        define(("LLAMA_BUILD_UI", "OFF")),
        unless=(r"CMake Warning", r"^-- "),
        explains=("fork_source_bug",),
    ),
    Rule(
        "ui_assets_build",
        (r"^\s*npm (?:ERR!|error) ", r"\bnpm: (?:command )?not found"),
        _UI_TITLE,
        _UI_REMEDY,
        define(("LLAMA_BUILD_UI", "OFF")),
        rank=GENERIC,
    ),
    Rule(
        "blas_missing",
        (r"^\s+BLAS not found, please refer to",),
        N_("No BLAS library was found"),
        N_("Install one (“apt install libopenblas-dev”), or take GGML_BLAS out of the definitions."),
        define(("GGML_BLAS", None)),
    ),
    Rule(
        "build_download_failed",
        (
            r"file DOWNLOAD (?:HASH mismatch|cannot)",
            r"Failed to (?:clone repository|checkout tag): '(?P<what>[^']*)'",
            r"error: downloading '(?P<what>[^']*)' failed",
            r"Each download failed",
        ),
        N_("The source tried to download a part of itself while it was configured, and failed"),
        N_(
            "The host needs a way to the internet for this option. Check its network and proxy, or take "
            "the option out of the definitions that needs the download (such as GGML_CPU_KLEIDIAI)."
        ),
    ),
    Rule(
        "missing_package",
        (
            r"^\s+Could NOT find (?P<name>\w+) ",
            r"^\s+Could not find a package configuration file provided by \"(?P<name>[^\"]+)",
        ),
        N_("A library that this source needs is missing: %(name)s"),
        N_("Install the development files of %(name)s on the host, or turn off the option that needs it."),
        rank=COMMON,
        unless_near=(Near(r"^CMake (?:Deprecation )?Warning", before=3),),
    ),
)
