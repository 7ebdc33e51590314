"""What a profile will take of each graphics card and of main memory, before anything is loaded.

Weights, caches and recurrent states are exact; work memory and the driver's share are stated upper bounds
(see memory_work), or what an earlier start taught (see memory_learn): then 2 % of a card have to stay free.
What the file does not say is unknown, and so is the verdict then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from controlpanel.lib.text import N_, Message
from controlpanel.llamacpp.gguf_header import GgufHeader
from controlpanel.llamacpp.memory_cache import (
    PLAIN_TYPES,
    cache_sizes,
    check_types,
    key_type,
    snapshots,
    state_sizes,
)
from controlpanel.llamacpp.memory_layers import Geometry, Layer, read_geometry
from controlpanel.llamacpp.memory_learn import SPLITS, Learned, Taught
from controlpanel.llamacpp.memory_places import layer_places, place_weights
from controlpanel.llamacpp.memory_projector import projector_work
from controlpanel.llamacpp.memory_settings import Settings, read_settings
from controlpanel.llamacpp.memory_types import (
    BOUNDS,
    HOST,
    MIB,
    Device,
    DeviceFit,
    Dialect,
    Estimate,
    EstimateError,
    Ledger,
    Verdict,
)
from controlpanel.llamacpp.memory_work import DRIVER_LEAST, Work, draft_work, run_time_cache, target_work

__all__ = ["SAFETY", "Device", "DeviceFit", "Estimate", "EstimateError", "estimate"]

SAFETY = 0.02
"""The part of a card that stays free where a term is corrected and no upper bound any more."""

_FORK_MTP = ("qwen35", "qwen35moe")


def estimate(
    model: GgufHeader | Sequence[GgufHeader],
    mmproj: GgufHeader | None,
    settings: Mapping[str, object],
    dialect: Dialect,
    devices: Sequence[Device],
    learned: Learned | None = None,
) -> Estimate:
    """Return what a server of these settings takes; `model` is all parts, the one with the metadata first.

    `settings` are meanings of a profile; absent ones are the server's defaults. `learned` corrects upper
    bounds. Raises EstimateError for settings that contradict each other, the files or the cards.
    """
    parts = (model,) if isinstance(model, GgufHeader) else tuple(model)
    header = parts[0]
    if header.kind == "mmproj":
        raise EstimateError(N_("This file is a projector: choose the model it belongs to."))
    if mmproj is not None and mmproj.projector is None:
        raise EstimateError(N_("This file is no projector: choose an mmproj file."))
    used = read_settings(settings, dialect, header.context_length)
    check_types(dialect, used.type_k, used.type_v, used.draft_type_k, used.draft_type_v)
    if not used.flash_attn and used.type_v not in PLAIN_TYPES:
        raise EstimateError(N_("A quantised V cache needs flash attention."))
    geometry = read_geometry(header)
    why: list[Message] = []
    if geometry is None:
        why.append(Message(N_("The file does not say how many layers it has.")))
        return _nothing(devices, why)
    if used.split_mode not in SPLITS:
        text = N_("How the split mode %(mode)s divides the model is not known here.")
        why.append(Message(text, {"mode": used.split_mode[:60]}))
        return _nothing(devices, why)
    ledger, floors = Ledger(), Ledger()
    taught = Taught(learned, used.flash_attn)
    places = layer_places(geometry, used, devices)
    _add_weights(ledger, parts, geometry, used, places, why)
    _add_caches(ledger, geometry, used, places, why)
    if used.mtp:
        _add_mtp(ledger, floors, parts, geometry, used, places, len(devices), taught, why)
    works = target_work(header, geometry, used, places, len(devices))
    _add_work(ledger, floors, works, geometry, used, places, taught, why)
    if mmproj is not None:
        _add_projector(ledger, mmproj, used, devices, taught, why, settings.get("image_max_tokens"))
    ledger.add(HOST, "prompt_cache", None if used.cache_ram is None else used.cache_ram * MIB)
    why += _notes(settings, geometry, used, devices)
    if taught.terms:
        why.append(Message(N_("What computations take is corrected by an earlier start of this build.")))
    bounds = BOUNDS.difference(taught.terms)
    fits = tuple(_fit(ledger, floors, index, device, bounds) for index, device in enumerate(devices))
    return Estimate(fits, ledger.mib(HOST), _verdict(fits), tuple(why), bounds, floors.mib(HOST))


def _nothing(devices: Sequence[Device], why: Sequence[Message]) -> Estimate:
    """Return the estimate of a model of which nothing can be said."""
    fits = tuple(DeviceFit(device.name, {"weights": None}, None, device.total) for device in devices)
    return Estimate(fits, {"weights": None}, "unknown", tuple(why))


def _add_weights(
    ledger: Ledger,
    parts: Sequence[GgufHeader],
    geometry: Geometry,
    settings: Settings,
    places: Sequence[int],
    why: list[Message],
) -> None:
    place_weights(ledger, parts, geometry, settings, places)
    if len(parts) < parts[0].split_count:
        why.append(Message(N_("Parts of the model were not read, so the size of its weights is not known.")))
        for place in set(places):
            ledger.add(place, "weights", None)
    elif any(tensor.size is None for part in parts for tensor in part.tensors):
        why.append(Message(N_("The file has tensors of a type whose size is not known here.")))


def _add_caches(
    ledger: Ledger, geometry: Geometry, settings: Settings, places: Sequence[int], why: list[Message]
) -> None:
    if geometry.trunk is None:
        why.append(Message(N_("What the layers of this architecture keep per token is not known here.")))
        for place in _cache_places(settings, places[: geometry.count - geometry.nextn]):
            ledger.add(place, "kv", None)
            if geometry.recurrent:
                ledger.add(place, "recurrent", None)
        return
    sizes = cache_sizes(geometry, geometry.trunk, settings, settings.type_k, settings.type_v)
    _spread(ledger, "kv", geometry.trunk, sizes, settings, places)
    _spread(
        ledger, "recurrent", geometry.trunk, state_sizes(geometry.trunk, settings.slots), settings, places
    )
    if sizes is None:
        why.append(Message(N_("The file does not name its context size: set one.")))
    kept = snapshots(geometry, settings)
    recurrent = [layer for layer in geometry.trunk if layer.state]
    if recurrent and kept is None:
        why.append(Message(N_("How many states a slot keeps with several MTP layers is not known here.")))
    if recurrent and kept != 0:
        more = None if kept is None else state_sizes(recurrent, settings.slots * kept)
        _spread(ledger, "mtp_recurrent", recurrent, more, settings, places)


def _add_mtp(
    ledger: Ledger,
    floors: Ledger,
    parts: Sequence[GgufHeader],
    geometry: Geometry,
    settings: Settings,
    places: Sequence[int],
    cards: int,
    taught: Taught,
    why: list[Message],
) -> None:
    header = parts[0]
    absent = not any(header.mtp_tensor in part.tensor_names for part in parts)
    if not geometry.nextn or (absent and len(parts) == header.split_count):
        raise EstimateError(N_("The model file holds no MTP heads: set Speculation to none."))
    if settings.dialect == "fork" and geometry.architecture not in _FORK_MTP:
        text = N_("The fork has MTP for the architectures %(known)s only, not for %(architecture)s.")
        raise EstimateError(text, known=", ".join(_FORK_MTP), architecture=geometry.architecture[:60])
    if settings.dialect == "fork" and settings.slots != 1:
        raise EstimateError(N_("With MTP this build serves one conversation at a time: set Slots to 1."))
    layers = geometry.mtp
    drafts = (settings.draft_type_k, settings.draft_type_v)
    mine = _cache_places(settings, places[geometry.count - geometry.nextn : geometry.count])
    if layers is None:
        why.append(Message(N_("What the MTP layers of this architecture keep per token is not known here.")))
        for place in mine:
            ledger.add(place, "mtp_kv", None)
        layers = ()
    else:
        _spread(ledger, "mtp_kv", layers, cache_sizes(geometry, layers, settings, *drafts), settings, places)
    more = run_time_cache(geometry, settings, layers, drafts)
    for place, work in draft_work(header, geometry, settings, places, cards).items():
        ledger.add(place, "mtp_compute", taught.work("mtp_compute", work))
        floors.add(place, "mtp_compute", work.floor if work else 0)
        if place != HOST:
            ledger.add(place, "margin", more)
            floors.add(place, "margin", more)


def _add_work(
    ledger: Ledger,
    floors: Ledger,
    works: Mapping[int, Work | None],
    geometry: Geometry,
    settings: Settings,
    places: Sequence[int],
    taught: Taught,
    why: list[Message],
) -> None:
    types = (key_type(geometry, settings, settings.type_k, settings.type_v), settings.type_v)
    for place, work in works.items():
        ledger.add(place, "compute", taught.work("compute", work))
        floors.add(place, "compute", work.floor if work else 0)
        if place != HOST:
            local = [layer for layer in geometry.trunk or () if places[layer.index] == place]
            more = run_time_cache(geometry, settings, local, types)
            ledger.add(place, "margin", taught.driver() + more)
            floors.add(place, "margin", DRIVER_LEAST + more)
    if None in works.values():
        why.append(Message(N_("The file does not say enough for a bound of the work memory.")))


def _add_projector(
    ledger: Ledger,
    mmproj: GgufHeader,
    settings: Settings,
    devices: Sequence[Device],
    taught: Taught,
    why: list[Message],
    image_tokens: object,
) -> None:
    place = 0 if devices and settings.mmproj_offload else HOST
    for tensor in mmproj.tensors:
        ledger.add(place, "mmproj", tensor.size)
    work = taught.projector(projector_work(mmproj)) if image_tokens is None else None
    ledger.add(place, "mmproj_compute", work)
    if image_tokens is not None:
        why.append(Message(N_("What a projector takes for images of a size of your own is not known here.")))
    elif work is None:
        text = N_("How much work memory a projector of this kind takes is not known here.")
        why.append(Message(text))
    if place != HOST:
        # A card may hold nothing but the projector.
        known = ledger.mib(place).get("margin")
        ledger.add(place, "margin", 0 if known else taught.driver())


def _cache_places(settings: Settings, places: Sequence[int]) -> set[int]:
    return set(places) if settings.kv_offload else {HOST}


def _spread(
    ledger: Ledger,
    term: str,
    layers: Sequence[Layer],
    sizes: Mapping[int, int] | None,
    settings: Settings,
    places: Sequence[int],
) -> None:
    """Add the bytes of each layer to where the layer lies, or to main memory when caches stay there."""
    for layer in layers:
        place = places[layer.index] if settings.kv_offload else HOST
        size = None if sizes is None else sizes.get(layer.index, 0)
        if size != 0:
            ledger.add(place, term, size)


def _notes(
    values: Mapping[str, object], geometry: Geometry, settings: Settings, devices: Sequence[Device]
) -> list[Message]:
    """Return what a person should know of the settings besides the numbers."""
    notes: list[Message] = []
    if key_type(geometry, settings, settings.type_k, settings.type_v) != settings.type_k:
        text = N_("With %(ratio)s heads per KV head this build keeps keys as q8_0 instead of %(type)s.")
        notes.append(Message(text, {"ratio": geometry.gqa, "type": settings.type_k}))
    if values.get("ctx_size") in (None, 0, "0"):
        text = N_(
            "No context size is set: this is for the model's own, %(cells)s tokens per cache; "
            "the server takes a smaller one if need be."
        )
        notes.append(Message(text, {"cells": settings.cells or "?"}))
    if devices and values.get("gpu_layers") in (None, "auto"):
        notes.append(
            Message(
                N_("GPU layers is auto: this is for all; the server moves some to main memory if need be.")
            )
        )
    return notes


def _fit(ledger: Ledger, floors: Ledger, index: int, device: Device, bounds: frozenset[str]) -> DeviceFit:
    terms = {**ledger.mib(index), "others": float(device.used)}
    known = [value for value in terms.values() if value is not None]
    total = sum(known) if len(known) == len(terms) else None
    safety = SAFETY if BOUNDS.difference(bounds).intersection(terms) else 0.0
    return DeviceFit(device.name, terms, total, device.total, bounds, safety, floors.mib(index))


def _verdict(fits: Sequence[DeviceFit]) -> Verdict:
    """Return whether all cards hold their part: what is certain decides against, the bounds decide for."""
    if any(fit.certain > fit.capacity for fit in fits):
        return "does not fit"
    if not fits or any(fit.total is None for fit in fits):
        return "unknown"
    return "fits" if all(fit.holds for fit in fits) else "tight"
