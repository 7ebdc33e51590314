"""Rules about the GPUs and what is split between them."""

from __future__ import annotations

import re

from controlpanel.lib.text import N_
from controlpanel.llamacpp.command_rules_case import Case, Rule
from controlpanel.llamacpp.problems import Problem, error, warning


def _shares_within_devices(case: Case) -> Problem | None:
    """Shares beyond all GPUs of the host are told by the field itself; this counts those made visible."""
    shares, devices = _shares(case), case.devices
    of_the_build = len(case.caps.devices)
    if not devices or shares <= devices or (of_the_build and shares > of_the_build):
        return None
    text = N_(
        "%(shares)s shares, but the server sees %(devices)s GPUs: give one share per GPU, or let it see more."
    )
    return error("tensor_split", text, shares=shares, devices=devices)


def _shares_for_all_devices(case: Case) -> Problem | None:
    shares, devices = _shares(case), case.devices
    if not devices or not 0 < shares < devices or case.settings.get("split_mode") == "none":
        return None
    text = N_(
        "%(shares)s shares for %(devices)s GPUs: the others get nothing. Give one share per GPU, 0 for one "
        "that is to stay free."
    )
    return warning("tensor_split", text, shares=shares, devices=devices)


def _split_between_gpus(case: Case) -> Problem | None:
    if not _shares(case):
        return None
    if case.settings.get("split_mode") == "none":
        text = N_(
            "With Split mode none the whole model goes to one GPU and the shares do nothing: clear one of "
            "the two fields."
        )
        return warning("tensor_split", text)
    if case.number("gpu_layers") == 0:
        text = N_("With 0 GPU layers nothing is split between GPUs: clear this field or raise GPU layers.")
        return warning("tensor_split", text)
    return None


def _main_gpu_exists(case: Case) -> Problem | None:
    number, devices = case.number("main_gpu"), case.devices
    if number is None or devices is None or number < devices:
        return None
    text = N_("The server sees %(devices)s GPUs, numbered from 0: there is no GPU %(number)s.")
    return error("main_gpu", text, devices=devices, number=number)


def _main_gpu_is_used(case: Case) -> Problem | None:
    if case.number("main_gpu") is None or case.settings.get("split_mode") in ("none", "row"):
        return None
    text = N_(
        "The main GPU counts only with Split mode none or row: set one of these, or leave this field empty."
    )
    return warning("main_gpu", text)


def _tensor_mode(case: Case) -> Problem | None:
    """The older dialect ends at the start with a quantised cache or without flash attention."""
    if case.settings.get("split_mode") != "tensor":
        return None
    older = case.caps.mtp_value == "mtp" or case.caps.turboquant
    quantised = case.quantised("cache_type_k") or case.quantised("cache_type_v")
    if older and (quantised or case.settings.get("flash_attn") == "off"):
        text = N_(
            "Split mode tensor of this build needs flash attention and a KV cache of f16: set Split mode to "
            "layer, or change those fields."
        )
        return error("split_mode", text)
    text = N_(
        "Split mode tensor is experimental, and the server does not fit the model into memory by itself "
        "with it: if it fails, choose layer."
    )
    return warning("split_mode", text)


def _row_mode(case: Case) -> Problem | None:
    fitting = case.settings.get("fit") != "off" and case.settings.get("gpu_layers") in (None, "auto")
    if case.settings.get("split_mode") != "row" or not fitting:
        return None
    text = N_(
        "With Split mode row the server does not fit the model into memory by itself: set GPU layers and "
        "Context size."
    )
    return warning("split_mode", text)


def _one_way_for_experts(case: Case) -> Problem | None:
    if not case.on("cpu_moe") or not case.number("n_cpu_moe"):
        return None
    text = N_("The experts of all layers stay on the CPU already: clear one of the two fields.")
    return warning("n_cpu_moe", text)


def _experts_exist(case: Case) -> Problem | None:
    if case.model is None or case.model.expert_count != 0:
        return None
    key = "cpu_moe" if case.on("cpu_moe") else "n_cpu_moe" if case.number("n_cpu_moe") else None
    if key is None:
        return None
    text = N_("This model has no experts, so this does nothing: lower GPU layers to keep layers on the CPU.")
    return warning(key, text)


def _shares(case: Case) -> int:
    """Return how many shares the split names, 0 for none."""
    value = case.settings.get("tensor_split")
    return len(re.split("[,/]", value)) if isinstance(value, str) and value else 0


RULES: tuple[Rule, ...] = (
    _shares_within_devices,
    _shares_for_all_devices,
    _split_between_gpus,
    _main_gpu_exists,
    _main_gpu_is_used,
    _tensor_mode,
    _row_mode,
    _one_way_for_experts,
    _experts_exist,
)
