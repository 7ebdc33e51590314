"""Which graphics card, or main memory, each layer and each tensor goes to."""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from controlpanel.lib.text import N_
from controlpanel.llamacpp.gguf_header import GgufHeader, Tensor
from controlpanel.llamacpp.memory_layers import QWEN, Geometry
from controlpanel.llamacpp.memory_settings import Settings
from controlpanel.llamacpp.memory_types import HOST, Device, EstimateError, Ledger

_BLOCK = re.compile(r"blk\.(\d{1,6})\.")
_EXPERTS = re.compile(r"\.ffn_(?:up|down|gate|gate_up)_(?:ch)?exps")
_INPUT = ("token_embd.", "position_embd.", "token_types.", "token_embd_norm.", "per_layer_token_embd.")
_OUTPUT = "output.weight"
_INPUT_TABLE = "token_embd.weight"
_HEAD_TENSORS = (_OUTPUT, "output_norm.weight")


def layer_places(geometry: Geometry, settings: Settings, devices: Sequence[Device]) -> tuple[int, ...]:
    """Return the place of each layer, and last that of the output: an index of `devices`, or HOST.

    Raises EstimateError for a split that does not fit the cards.
    """
    total = geometry.count + 1
    if not devices:
        return (HOST,) * total
    if settings.main_gpu >= len(devices):
        text = N_("The main GPU is number %(number)s, but there are %(count)s GPUs, counted from 0.")
        raise EstimateError(text, number=settings.main_gpu, count=len(devices))
    if len(settings.shares) > len(devices):
        text = N_("The tensor split names %(shares)s GPUs, but there are %(count)s.")
        raise EstimateError(text, shares=len(settings.shares), count=len(devices))
    offloaded = total if settings.gpu_layers is None else min(settings.gpu_layers, total)
    start = total - offloaded
    if settings.split_mode == "none":
        return (HOST,) * start + (settings.main_gpu,) * offloaded
    points = _split_points(settings, devices)
    gpus = (bisect_right(points, _f32(index / offloaded)) for index in range(offloaded))
    return (HOST,) * start + tuple(min(gpu, len(devices) - 1) for gpu in gpus)


def place_weights(
    ledger: Ledger,
    parts: Sequence[GgufHeader],
    geometry: Geometry,
    settings: Settings,
    places: Sequence[int],
) -> None:
    """Add the bytes of all tensors that the server loads to "weights" and "mtp_weights"."""
    tensors = [tensor for part in parts for tensor in part.tensors]
    trunk = geometry.count - geometry.nextn
    fork = settings.dialect == "fork"
    # The fork's main model loads the MTP layers of these too, and has no use for them.
    twice = fork and geometry.architecture in QWEN
    for tensor in tensors:
        layer = _layer(tensor)
        if layer is None or layer < trunk or twice:
            ledger.add(_place(tensor, layer, settings, places), "weights", tensor.size)
        if layer is not None and layer >= trunk and settings.mtp:
            place = _place(tensor, layer, settings, places)
            # In main memory both models of the fork map the same file.
            if place != HOST or not twice:
                ledger.add(place, "mtp_weights", tensor.size)
    _copies(ledger, tensors, settings, places[-1], fork)


def _copies(ledger: Ledger, tensors: Sequence[Tensor], settings: Settings, output: int, fork: bool) -> None:
    """Add what a card gets besides: the input table that serves as output, and the fork's second output."""
    named = {tensor.name: tensor for tensor in tensors}
    table = named.get(_INPUT_TABLE)
    tied = _OUTPUT not in named and table is not None
    if output == HOST:
        return
    if tied and table is not None:
        ledger.add(output, "weights", table.size)
    if settings.mtp and fork:
        for name in _HEAD_TENSORS:
            tensor = table if name == _OUTPUT and tied else named.get(name)
            if tensor is not None:
                ledger.add(output, "mtp_weights", tensor.size)


def _layer(tensor: Tensor) -> int | None:
    found = _BLOCK.match(tensor.name)
    return int(found[1]) if found else None


def _place(tensor: Tensor, layer: int | None, settings: Settings, places: Sequence[int]) -> int:
    if layer is None:
        return HOST if tensor.name.startswith(_INPUT) else places[-1]
    if _EXPERTS.search(tensor.name) and (settings.cpu_moe or layer < settings.n_cpu_moe):
        return HOST
    return places[layer] if layer < len(places) - 1 else places[-1]


def _split_points(settings: Settings, devices: Sequence[Device]) -> list[float]:
    """Return where each card's share ends, from 0 to 1, rounded as the server rounds it."""
    shares = list(settings.shares) or [max(0.0, device.total - device.used) for device in devices]
    shares += [0.0] * (len(devices) - len(shares))
    if not any(shares):
        shares = [1.0] * len(devices)
    ends = list(accumulate(shares, lambda one, other: _f32(one + other)))
    if not ends[-1]:  # shares that a 32-bit float does not tell from nothing
        ends = [float(number) for number in range(1, len(devices) + 1)]
    return [_f32(end / ends[-1]) for end in ends]


def _f32(value: float) -> float:
    """Return the nearest 32-bit float: which card a layer at a border goes to depends on it."""
    return float(struct.unpack("f", struct.pack("f", value))[0])
