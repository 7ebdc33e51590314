"""Rules about the work done at once: batches and threads."""

from __future__ import annotations

from controlpanel.lib.text import N_
from controlpanel.llamacpp.command_rules_case import Case, Rule
from controlpanel.llamacpp.problems import Problem, warning


def _micro_batch_within_batch(case: Case) -> Problem | None:
    key = "ubatch" if case.number("ubatch") is not None else "batch"
    batch = case.number("batch") or case.default("--batch-size")
    ubatch = case.number("ubatch") or case.default("--ubatch-size")
    if case.number(key) is None or batch is None or ubatch is None or ubatch <= batch:
        return None
    text = N_(
        "The server cuts the micro-batch of %(ubatch)s tokens to the batch of %(batch)s: set Batch size at "
        "least as high as Micro-batch size."
    )
    return warning(key, text, ubatch=ubatch, batch=batch)


def _threads_within_cores(case: Case) -> Problem | None:
    cores = case.host.cores
    if cores is None:
        return None
    key = next((key for key in ("threads", "threads_batch") if (case.number(key) or 0) > cores), None)
    if key is None:
        return None
    text = N_("The host has %(cores)s cores: more threads wait for each other. Give at most %(cores)s.")
    return warning(key, text, cores=cores)


RULES: tuple[Rule, ...] = (_micro_batch_within_batch, _threads_within_cores)
