"""Header of a GGUF with 250,000 tokens: our reader against the `gguf` package, in fresh processes.

Goal: at least 20 times as fast, below 50 MB.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.figures import answer, median

TOKENS = 250_000
ROUNDS = 3
OURS = "from controlpanel.llamacpp.gguf import examine; examine(path)"
THEIRS = "from gguf import GGUFReader; GGUFReader(path)"
MEASURE = """
import re, sys, time
path = sys.argv[1]
began = time.perf_counter()
{code}
seconds = time.perf_counter() - began
peak = re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())
print(seconds, int(peak[1]) / 1024)
"""


def make(path: Path) -> None:
    """Write a model header with a large vocabulary and as many merges."""
    import gguf
    import numpy as np

    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_block_count(1)
    writer.add_context_length(4096)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"token{number}" for number in range(TOKENS)])
    writer.add_token_types([1] * TOKENS)
    writer.add_token_merges([f"a{number} b{number}" for number in range(TOKENS)])
    for number in range(600):
        writer.add_tensor(f"blk.{number}.w", np.zeros((4, 4), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def measure(code: str, path: Path) -> tuple[float, float]:
    """Seconds and MiB (peak RSS) of reading the file once in a fresh process."""
    argv = [sys.executable, "-c", MEASURE.format(code=code), str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    seconds, mib = done.stdout.split()
    return float(seconds), float(mib)


def main() -> None:
    """Measure pairs."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "big.gguf"
        make(path)
        pairs = [(measure(OURS, path), measure(THEIRS, path)) for _ in range(ROUNDS)]
    answer(
        ours_s=median(ours[0] for ours, _ in pairs),
        theirs_s=median(theirs[0] for _, theirs in pairs),
        times_as_fast=median(theirs[0] / ours[0] for ours, theirs in pairs),
        ours_mib=median(ours[1] for ours, _ in pairs),
        theirs_mib=median(theirs[1] for _, theirs in pairs),
    )


if __name__ == "__main__":
    main()
