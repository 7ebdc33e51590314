"""Small model files and pictures for tests."""

from __future__ import annotations

import atexit
import os
import shutil
import struct
import tempfile
import zlib
from functools import cache
from pathlib import Path

from controlpanel.demo import tiny_model

COLOURS = {
    "Black": (0, 0, 0),
    "White": (255, 255, 255),
    "Red": (255, 0, 0),
    "Green": (0, 255, 0),
    "Blue": (0, 0, 255),
}


@cache
def _made() -> Path:
    """A folder with all files, made once per process and removed at its end."""
    folder = Path(tempfile.mkdtemp(prefix="tiny-models-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    tiny_model.make_all(folder)
    tiny_model.make_text_model(folder / tiny_model.PLAIN_NAME, heads=False)
    return folder


def tiny_models(folder: Path) -> tuple[Path, Path]:
    """The tiny MTP model and its projector, put into `folder`."""
    return _put(tiny_model.TEXT_NAME, folder), _put(tiny_model.PROJECTOR_NAME, folder)


def plain_model(folder: Path) -> Path:
    """The tiny model without MTP heads, put into `folder`."""
    return _put(tiny_model.PLAIN_NAME, folder)


def _put(name: str, folder: Path) -> Path:
    target = folder / name
    if not target.exists():
        try:
            os.link(_made() / name, target)
        except OSError:  # another file system
            shutil.copyfile(_made() / name, target)
    return target


def solid_png(colour: tuple[int, int, int], size: int = 64) -> bytes:
    """A PNG of one colour, `size` pixels wide and high."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + bytes(colour) * size) * size
    header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def padded_model(folder: Path, mib: int) -> Path:
    """A model file of about so many MiB: the header of a small one and one tensor that fills the rest."""
    import gguf
    import numpy

    path = folder / f"padded-{mib}.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(4096)
    writer.add_block_count(1)
    writer.add_embedding_length(1024)
    numbers = numpy.random.default_rng(mib).integers(0, 255, mib * 1024 * 1024, dtype=numpy.uint8)
    writer.add_tensor("token_embd.weight", numbers.view(numpy.float16).reshape(-1, 1024))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
