"""Which builds can run a model file, as far as a build tells."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from controlpanel.lib.text import N_
from controlpanel.llamacpp.capabilities import Capabilities
from controlpanel.llamacpp.gguf_facts import GgufFacts
from controlpanel.llamacpp.gguf_fit import content_words
from controlpanel.llamacpp.gguf_forks import OLD_TYPES, TURBOQUANT, fork_of, type_label, type_word
from controlpanel.llamacpp.problems import Problem, error, warning

# Texts that the libraries of every llama.cpp contain: without them, an absent word means nothing.
SURE_WORDS = ("general.architecture", "q4_K")
_FUNCTION = "dequantize_row_"
_SURE_FUNCTION = "dequantize_row_q4_K"
# What the TurboQuant fork uses for its KV cache; in files, only llama.cpp's later Q2_0 has the number.
_Q2_0 = 42
_FORK_TRUNKS = frozenset({"qwen35", "qwen35moe"})


@dataclass(frozen=True)
class BuildFacts:
    """A build to be judged; `words` are those of wanted_words() that its libraries contain, None: unread."""

    name: str
    capabilities: Capabilities
    words: frozenset[str] | None = None


@dataclass(frozen=True)
class Verdict:
    """Whether a build can run a file: `runs` is None when the build does not tell enough."""

    build: str
    runs: bool | None
    problems: tuple[Problem, ...]


def wanted_words(facts: GgufFacts) -> frozenset[str]:
    """Return the texts to look for in a build's libraries, each followed by a zero byte there."""
    words = {type_word(share.type) for share in facts.types} | {*SURE_WORDS, _SURE_FUNCTION}
    words.add(facts.architecture)
    words.add(facts.pre_tokenizer)
    if facts.projector is not None:
        words.add(facts.projector.type)
    return frozenset(word for word in words if word)


def judge(facts: GgufFacts, build: BuildFacts) -> Verdict:
    """Return whether a build can run a file, with the reasons, those against it first."""
    content = facts.content
    if content in ("vocabulary", "adapter", "imatrix", "control vector", "empty"):
        text = N_("No build can serve this file by itself: it holds %(content)s.")
        return Verdict(build.name, False, (error("model", text, content=content_words(facts)),))
    problems = [*_architecture(facts, build), *_tensor_types(facts, build)]
    unsure = any(problem.level == "warning" for problem in problems)
    problems += _heads(facts, build.capabilities)
    problems.sort(key=lambda problem: problem.level)
    failed = any(problem.level == "error" for problem in problems)
    return Verdict(build.name, False if failed else None if unsure else True, tuple(problems))


def _known(word: str, build: BuildFacts) -> bool | None:
    """Tell whether a build knows a name; None when its libraries were not read, or not all of them."""
    if build.words is None:
        return None
    if word in build.words:
        return True
    sure = (_SURE_FUNCTION,) if word.startswith(_FUNCTION) else SURE_WORDS
    return False if build.words.issuperset(sure) else None


def _architecture(facts: GgufFacts, build: BuildFacts) -> Iterator[Problem]:
    if facts.projector is not None:
        yield from _projector(facts.projector.type, build)
        return
    name = facts.architecture
    if not name:
        yield error("model", N_("The file does not name its architecture: no build can load it."))
        return
    known = _known(name, build)
    if known is None:
        text = N_("Whether this build knows the architecture %(name)s is unknown.")
        yield warning("build", text, name=name)
    elif not known:
        text = N_("This build does not know the architecture %(name)s: use a newer one, or the right fork.")
        yield error("build", text, name=name)
    if facts.pre_tokenizer and known and _known(facts.pre_tokenizer, build) is False:
        text = N_("This build may not know the tokenizer %(name)s: if it says so, use a newer one.")
        yield warning("build", text, name=facts.pre_tokenizer)


def _projector(kind: str, build: BuildFacts) -> Iterator[Problem]:
    # A compiler may build short names into the code, so an absent one proves nothing.
    if not build.capabilities.has("--mmproj"):
        yield error("build", N_("This build takes no projectors: it has no --mmproj."))
    elif not _known(kind, build):
        text = N_("Whether this build knows projectors of the kind %(kind)s is unknown.")
        yield warning("build", text, kind=kind)


def _tensor_types(facts: GgufFacts, build: BuildFacts) -> Iterator[Problem]:
    for number in (share.type for share in facts.types if share.type not in OLD_TYPES):
        label, fork = type_label(number), fork_of(number)
        turboquant = build.capabilities.turboquant
        if number == _Q2_0 and turboquant:
            text = N_(
                "This fork uses the number of the tensor type Q2_0 for another type: it cannot read it."
            )
            yield error("build", text)
            continue
        word = type_word(number)
        known = None if word is None else _known(word, build)
        if known is None and fork == TURBOQUANT and build.capabilities.cache_types and not turboquant:
            known = False
        if known is None:
            text = N_("Whether this build can read the tensor type %(type)s is unknown.")
            yield warning("build", text, type=label)
        elif not known and fork:
            text = N_("The tensor type %(type)s is one of the fork %(fork)s: only its builds can read it.")
            yield error("build", text, type=label, fork=fork)
        elif not known:
            text = N_("This build cannot read the tensor type %(type)s: use a newer one.")
            yield error("build", text, type=label)


def _heads(facts: GgufFacts, capabilities: Capabilities) -> Iterator[Problem]:
    """Yield what keeps MTP from working; the model itself runs all the same."""
    if not facts.mtp.usable:
        return
    value = capabilities.mtp_value
    if value is None:
        text = N_("This build has no MTP: the model runs, its MTP heads are of no use.")
    elif value == "mtp" and facts.content == "mtp heads":
        text = N_("This build takes MTP heads only from the model's own file.")
    elif value == "mtp" and facts.architecture not in _FORK_TRUNKS:
        text = N_("This build has MTP for qwen35 and qwen35moe only.")
    else:
        return
    if facts.content == "mtp heads":
        yield error("build", text)
    else:
        yield warning("build", text)
