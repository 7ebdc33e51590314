"""Which model a projector or a file of MTP heads belongs to, before anything is loaded."""

from __future__ import annotations

import re
from dataclasses import dataclass

from controlpanel.lib.text import N_, Message
from controlpanel.llamacpp.gguf_facts import GgufFacts
from controlpanel.llamacpp.problems import Problem, error, warning
from controlpanel.llamacpp.projectors import made_for

_WORD = re.compile(r"\d+(?:\.\d+)?b?|[a-z]+")
# What a name says of the kind of file and of its quantisation, not of which model it is.
_QUANT = re.compile(r"\b(?:i?q\d\w*|bf16|fp?16|fp?32|fp?8)\b")
_NOISE = frozenset(
    ("chat", "clip", "encoder", "gguf", "head", "heads", "hf", "instruct", "it", "mmproj", "model", "mtp")
    + ("preview", "projector", "thinking", "vision", "ud", "the")
)


@dataclass(frozen=True)
class Fit:
    """Whether two files can be used together; None when the files do not say enough."""

    fits: bool | None
    problems: tuple[Problem, ...]


def projector_fit(projector: GgufFacts, model: GgufFacts) -> Fit:
    """Compare a projector with a text model as llama-server will, and their families as it does not."""
    problems: list[Problem] = []
    facts = projector.projector
    if facts is None:
        return Fit(False, (error("mmproj", N_("This file is no projector: choose an mmproj file.")),))
    if model.content != "model":
        text = N_("A projector goes with a text model; this file is one of %(content)s.")
        return Fit(False, (error("model", text, content=content_words(model)),))
    if facts.width is not None and model.embedding_length is not None:
        if facts.width != model.embedding_length:
            text = N_(
                "The projector makes vectors of %(width)s numbers, the model takes %(needed)s: it belongs to "
                "another model. Choose the mmproj file from the model's own repository."
            )
            return Fit(False, (error("mmproj", text, width=facts.width, needed=model.embedding_length),))
        fits: bool | None = True
    else:
        fits = None
        text = N_("The files do not say how wide their vectors are: the server will tell when it starts.")
        problems.append(warning("mmproj", text))
    if model.architecture and made_for(facts.type, model.architecture) is False:
        text = N_(
            "This projector was made for %(family)s, the model's architecture is %(architecture)s: the "
            "widths may agree by chance, and answers about pictures would be nonsense."
        )
        problems.append(warning("mmproj", text, family=facts.family, architecture=model.architecture))
    elif (named := _other_name(projector, model)) is not None:
        problems.append(named)
    return Fit(fits, tuple(problems))


def heads_fit(heads: GgufFacts, model: GgufFacts) -> Fit:
    """Compare a file of MTP heads with the model that they are to draft for."""
    if heads.content != "mtp heads":
        text = N_("This file does not hold MTP heads alone: it cannot be used beside a model.")
        return Fit(False, (error("model", text),))
    if model.content != "model":
        text = N_("MTP heads go with a text model; this file is one of %(content)s.")
        return Fit(False, (error("model", text, content=content_words(model)),))
    pairs = (
        (N_("architecture"), heads.architecture, model.architecture),
        (N_("width"), heads.embedding_length, model.embedding_length),
        (N_("vocabulary"), heads.vocabulary, model.vocabulary),
        (N_("layers"), heads.trunk_layers, model.trunk_layers),
    )
    wrong = [pair for pair in pairs if None not in pair[1:] and pair[1] != pair[2]]
    if wrong:
        text = N_(
            "These MTP heads belong to another model: %(what)s is %(heads)s here and %(model)s in the model."
        )
        what, ours, theirs = wrong[0]
        return Fit(False, (error("model", text, what=Message(what), heads=ours, model=theirs),))
    unknown = any(None in pair[1:] for pair in pairs[:2])
    named = _other_name(heads, model)
    return Fit(None if unknown else True, () if named is None else (named,))


def content_words(facts: GgufFacts) -> Message:
    """Return in words what a file holds."""
    return Message(_CONTENT[facts.content])


_CONTENT = {
    "model": N_("model"),
    "mtp heads": N_("MTP heads without their model"),
    "projector": N_("projector"),
    "vocabulary": N_("vocabulary without a model"),
    "adapter": N_("adapter (LoRA)"),
    "imatrix": N_("importance matrix"),
    "control vector": N_("control vector"),
    "empty": N_("nothing: it has no tensors"),
}


def _other_name(one: GgufFacts, other: GgufFacts) -> Problem | None:
    field = "mmproj" if one.projector else "model"
    return other_name(field, one.name or one.basename, other.name or other.basename)


def other_name(field: str, first: str | None, second: str | None) -> Problem | None:
    """Return a warning when two files both name their model, and not the same."""
    ours, theirs = _words(first or ""), _words(second or "")
    if not ours or not theirs or ours <= theirs or theirs <= ours:
        return None
    text = N_(
        "The names differ: “%(first)s” and “%(second)s”. Equal widths are no proof; if these are different "
        "models, answers will be nonsense."
    )
    return warning(field, text, first=first, second=second)


def _words(name: str) -> frozenset[str]:
    return frozenset(_WORD.findall(_QUANT.sub(" ", name.lower()))) - _NOISE
