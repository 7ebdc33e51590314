"""Rules for whole GGUF files that a build cannot use: parts, architecture, tokenizer, tensors."""

from __future__ import annotations

import re
from collections.abc import Iterable

from controlpanel.lib.text import N_
from controlpanel.llamacpp.rule_types import Change, Found, Near, Rule

_PART = re.compile(r"-\d{5}-of-(\d{5})\.gguf$")
_NEWER = N_(
    "The file is fine. Build a newer llama.cpp, or the fork that the model's page names, and choose that "
    "build; “manage.py gguf FILE” says which of your builds know the model."
)


def _first_part(found: Found) -> Iterable[Change]:
    """Choose the first part of the model that the log names."""
    file = found["file"]
    if not _PART.search(file):
        return []
    return [Change("model", _PART.sub(r"-00001-of-\1.gguf", file))]


PART_RULES = (
    Rule(
        "split_not_first",
        (r"illegal split file idx: \d+ \(file: (?P<file>.{1,1000}?)\), model must be loaded with the first",),
        N_("A later part of a split model was chosen"),
        N_("Choose the part whose name ends with -00001-of-…: it brings the others along."),
        _first_part,
    ),
    Rule(
        "split_part_missing",
        (
            r"failed to load GGUF split from (?P<file>\S+)",
            r"failed to open GGUF file '(?P<file>[^']*-(?!00001)\d{5}-of-\d{5}\.gguf)'",
            r"invalid split count, given: \d+ splits, but expected (?P<count>\d+)",
        ),
        N_("A part of the split model is missing or not complete"),
        N_(
            "All parts have to lie in one folder under their original names. Download the part that the log "
            "names, or the whole model again."
        ),
        explains=("file_not_found", "file_unreadable", "truncated_gguf", "not_gguf"),
    ),
    Rule(
        "split_wrongly_joined",
        (
            r"invalid split file: (?P<file>\S+)",
            r"invalid split file name: (?P<file>\S+)",
        ),
        N_("The parts of a split model were joined or renamed by hand"),
        N_(
            "Parts of a GGUF model must not be put together with “cat”, and need their original names "
            "(NAME-00001-of-00003.gguf). Keep the parts and choose the first one, or join them with "
            "“llama-gguf-split --merge”."
        ),
    ),
    Rule(
        "split_mixed",
        (
            r"invalid split file idx: \d+ \(file: (?P<file>.{1,1000}?)\), expected \d+",
            r"missing key split\.no in GGUF split (?P<file>\S+)",
            r"corrupted model: \d+ tensors expected but \d+ found",
            r"invalid model: tensor '[^']*' is duplicated",
        ),
        N_("The parts beside each other do not belong to one model"),
        N_(
            "Parts of different models or versions were mixed, or one was renamed. Download all parts again "
            "into an empty folder, from one revision of the repository."
        ),
    ),
)

MODEL_RULES = (
    Rule(
        "projector_as_model",
        (
            r"CLIP cannot be used as main model",
            r"unknown model architecture: 'clip'",
        ),
        N_("A projector (mmproj) was chosen as the model"),
        N_("Choose the text model as the model, and this file in the field for the vision projector."),
        explains=("unknown_architecture_old_build",),
    ),
    Rule(
        "unknown_architecture_old_build",
        (
            r"unknown model architecture: '(?P<architecture>[^']*)'",
            r"unsupported model architecture: '(?P<architecture>[^']*)'",
        ),
        N_("This build does not know the model's architecture: %(architecture)s"),
        _NEWER,
    ),
    Rule(
        "unknown_pretokenizer",
        (
            r"unknown pre-tokenizer type: '(?P<tokenizer>[^']*)'",
            r"error loading model vocabulary: unknown tokenizer: '(?P<tokenizer>[^']*)'",
        ),
        N_("This build does not know the model's tokenizer: %(tokenizer)s"),
        _NEWER,
    ),
    Rule(
        "unknown_tensor_type",
        (
            r"has invalid ggml type (?P<type>\d+)",
            r"invalid ggml type (?P<type>\d+)",
        ),
        N_("This build does not know a tensor type of the file (number %(type)s)"),
        N_(
            "The file is quantised in a way that is newer than the build, or that only one fork knows: 42 is "
            "Q2_0 of newer builds of llama.cpp, 45 and 46 belong to TurboQuant forks, 133 to 158 to "
            "ik_llama.cpp. Use such a build, or download another quantisation of the model."
        ),
        explains=("truncated_gguf", "damaged_gguf"),
    ),
    Rule(
        "tensor_count_old_build",
        (
            r"wrong number of tensors; expected (?P<expected>\d+), got (?P<got>\d+)",
            r"too many tensors created; expected (?P<expected>\d+), got (?P<got>\d+)",
        ),
        N_("The file has %(expected)s tensors, of which the build uses %(got)s"),
        N_(
            "The build is older than the model's file, which brings more tensors along (such as MTP heads or "
            "factors for long contexts). The file is complete: use a newer build, or the fork that the "
            "model's page names."
        ),
    ),
    Rule(
        "missing_tensor",
        (
            r"error loading model: missing tensor '(?P<tensor>[^']*)'",
            r"error loading model: \w{0,40}:? ?tensor '(?P<tensor>[^']*)' not found",
            r"tensor '(?P<tensor>[^']*)' has wrong shape; expected",
            r"tensor '(?P<tensor>[^']*)' has wrong type; expected",
        ),
        N_("Build and model do not fit: the tensor %(tensor)s is missing or differs"),
        N_(
            "Either the build is older than the way this file was converted, or the file was converted "
            "wrongly. Try a newer build, or the fork that the model's page names; else look for another "
            "conversion of the model."
        ),
        unless=(r"\.nextn\.",),
    ),
    Rule(
        "mtp_tensor_missing",
        (r"error loading model: missing tensor '(?P<tensor>[^']*\.nextn\.[^']*)'",),
        N_("The file announces MTP heads but does not hold them all"),
        N_(
            "The tensor %(tensor)s is missing. Download a file with MTP heads (the model's page says so), or "
            "one without any."
        ),
    ),
    Rule(
        "missing_key",
        (
            r"key not found in model: (?P<key>\S+)",
            r"error loading model hyperparameters: key (?P<key>\S+) has wrong",
        ),
        N_("The model's metadata lack %(key)s, or have it in another form"),
        N_(
            "The file was converted by a script that does not match the build. Use a newer build, or look "
            "for a newer conversion of the model."
        ),
    ),
    Rule(
        "tokenizer_missing",
        (r"cannot find tokenizer (?:vocab|merges|scores) in model file",),
        N_("The file holds no complete tokenizer"),
        N_("It was converted without one. Look for another conversion of the model."),
        with_=(Near(r"error loading model vocabulary", after=1, before=1, required=False),),
    ),
)
