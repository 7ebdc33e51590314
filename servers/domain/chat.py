"""The chat request to llama-server and what its answer means."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from controlpanel.lib.text import N_, Message
from servers.domain.sampling import SETTINGS
from servers.domain.sse import EventReader, ServerEvent

MAX_IMAGE = 10 * 1024 * 1024  # bytes
MAX_NUMBER = 1e15  # no count or speed of an answer comes near


@dataclass(frozen=True)
class Exchange:
    """An earlier question with its answer."""

    prompt: str
    answer: str


@dataclass(frozen=True)
class ChatOptions:
    """What a request asks for beyond its texts; None leaves it to the server's settings."""

    system: str = ""
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repeat_penalty: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    thinking: bool | None = None
    prefill: str = ""  # the part of the answer that exists already and is to be continued


@dataclass(frozen=True)
class PromptProgress:
    """How much of the prompt has been read, in tokens."""

    processed: int
    total: int


@dataclass(slots=True)  # not frozen: that makes it three times as slow to create, once for each token
class Delta:
    """What one event of the stream adds to the answer."""

    content: str = ""
    reasoning: str = ""
    finish_reason: str = ""
    timings: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None
    progress: PromptProgress | None = None
    error: Message | None = None


def build_request(
    turns: Iterable[Exchange],
    prompt: str,
    image_data_uris: Sequence[str] = (),
    options: ChatOptions | None = None,
) -> dict[str, Any]:
    """Return the body for /v1/chat/completions; exchanges without an answer are left out."""
    options = options or ChatOptions()
    messages: list[dict[str, Any]] = []
    if options.system:
        messages.append({"role": "system", "content": options.system})
    for turn in turns:
        if turn.answer:
            messages.append({"role": "user", "content": turn.prompt})
            messages.append({"role": "assistant", "content": turn.answer})
    content: str | list[dict[str, Any]] = prompt
    if image_data_uris:
        content = [{"type": "image_url", "image_url": {"url": uri}} for uri in image_data_uris]
        content.append({"type": "text", "text": prompt})
    messages.append({"role": "user", "content": content})
    thinking = options.thinking
    if options.prefill:
        # The server goes on with a last message of the assistant, but refuses to while thinking is on.
        messages.append({"role": "assistant", "content": options.prefill})
        thinking = False
    request: dict[str, Any] = {
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_progress": True,
        "cache_prompt": True,
    }
    if thinking is not None:
        request["chat_template_kwargs"] = {"enable_thinking": thinking}
    for setting in SETTINGS:
        value = getattr(options, setting.name)
        if value is not None:
            request[setting.name] = value
    return request


def image_data_uri(data: bytes) -> str:
    """Return a PNG, JPEG, GIF or WebP file as a data URI; raises ValueError with words otherwise."""
    if len(data) > MAX_IMAGE:
        raise ValueError(N_("The image is larger than 10 MB. Use a smaller one."))
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        kind = "png"
    elif data.startswith(b"\xff\xd8\xff"):
        kind = "jpeg"
    elif data.startswith((b"GIF87a", b"GIF89a")):
        kind = "gif"
    elif data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        kind = "webp"
    else:
        raise ValueError(N_("The file is not a PNG, JPEG, GIF or WebP image."))
    return f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"


def delta_of(event: ServerEvent) -> Delta:
    """Return what an event says; unknown or damaged parts of it count as absent."""
    try:
        data = json.loads(event.data)
    except ValueError:
        return Delta(error=Message(N_("The server sent an event that is not JSON.")))
    if not isinstance(data, dict):
        return Delta()
    if event.kind == "error":
        data = data if "error" in data else {"error": data}
    if data.get("error"):
        return Delta(error=_words_of(data["error"], 0))
    choices = data.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    delta = choice.get("delta")
    delta = delta if isinstance(delta, dict) else {}
    return Delta(
        content=_text(delta.get("content")),
        reasoning=_text(delta.get("reasoning_content")),
        finish_reason=_text(choice.get("finish_reason")),
        timings=_mapping(data.get("timings")),
        usage=_mapping(data.get("usage")),
        progress=_progress(data.get("prompt_progress")),
    )


class AnswerReader:
    """Bytes of a streamed answer in, deltas out; knows whether the answer came to its end."""

    def __init__(self) -> None:
        self._events = EventReader()
        self._failed = False

    def feed(self, chunk: bytes) -> list[Delta]:
        """Return the deltas completed by this chunk; raises StreamBroken."""
        deltas = [delta_of(event) for event in self._events.feed(chunk)]
        self._failed = self._failed or any(delta.error for delta in deltas)
        return deltas

    def end(self) -> Message | None:
        """Return what was wrong with the end of the stream, or None when [DONE] or an error came first."""
        if self._events.done or self._failed:
            return None
        return Message(
            N_("The server closed the connection before the answer was complete. Look at its log.")
        )


@dataclass
class AnswerParts:
    """The texts and numbers of one answer as they come together."""

    answer: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    finish_reason: str = ""
    timings: dict[str, Any] = field(default_factory=dict)

    def add(self, delta: Delta) -> None:
        """Take in one delta (its progress and error are the caller's business)."""
        if delta.content:
            self.answer.append(delta.content)
        if delta.reasoning:
            self.reasoning.append(delta.reasoning)
        self.finish_reason = delta.finish_reason or self.finish_reason
        self.timings = delta.timings or self.timings


def timings_summary(timings: Mapping[str, Any]) -> dict[str, float | int | None]:
    """Return the numbers of an answer (tokens, tokens per second); None is unknown, never zero."""
    summary: dict[str, float | int | None] = {
        name: _number(timings.get(name))
        for name in (
            "prompt_n",
            "prompt_per_second",
            "predicted_n",
            "predicted_per_second",
            "draft_n",
            "draft_n_accepted",
            "cache_n",
        )
    }
    drafted, accepted = summary["draft_n"], summary["draft_n_accepted"]
    summary["acceptance"] = _number(accepted / drafted) if drafted and accepted is not None else None
    prompt, predicted = summary["prompt_n"], summary["predicted_n"]
    if prompt is None or predicted is None:
        summary["context_used"] = None
    else:
        summary["context_used"] = _number(prompt + predicted + (summary["cache_n"] or 0))
    return summary


def measured_summary(tokens: int, seconds: float) -> dict[str, Any]:
    """Return what the panel itself counted of an answer whose server told nothing at its end.

    Seconds from the first token to the last; `measured` marks the numbers as the panel's.
    """
    rate = (tokens - 1) / seconds if tokens > 1 and seconds > 0 else None
    return {"measured": True, "predicted_n": tokens, "predicted_per_second": rate}


def error_in_words(status: int, body: bytes | str) -> Message:
    """Return what an HTTP error of llama-server means and what to do about it."""
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
    try:
        data = json.loads(text)
    except ValueError:
        data = None
    error = data.get("error") if isinstance(data, dict) else None
    return _words_of(error if error else text, status)


def _words_of(error: object, status: int) -> Message:
    fields = error if isinstance(error, dict) else {"message": error}
    message = _text(fields.get("message")).strip()
    kind = _text(fields.get("type"))
    code = status or _number(fields.get("code"))
    if kind == "exceed_context_size_error":
        return _too_long(fields)
    if "image input is not supported" in message or "mmproj" in message:
        return Message(
            N_("This server cannot read images: its profile has no vision projector. Choose one and restart.")
        )
    if code == 401 or kind == "authentication_error":
        return Message(N_("The server refused the panel's key. Restart the server."))
    if code == 503 or kind == "unavailable_error":
        return Message(N_("The server is still loading its model. Try again in a moment."))
    if message:
        return Message(N_("The server said: %(text)s"), {"text": message[:500]})
    return Message(N_("The server answered with error %(code)s and no explanation."), {"code": code or "?"})


def _too_long(fields: Mapping[str, Any]) -> Message:
    tokens, limit = _number(fields.get("n_prompt_tokens")), _number(fields.get("n_ctx"))
    if tokens is None or limit is None:
        return Message(
            N_(
                "The conversation is longer than the server's context. "
                "Start a new conversation or raise the context size."
            )
        )
    # At least one token must stay free for the answer, so a prompt that just fits is one too long.
    over = max(1, int(tokens - limit))
    return Message(
        N_(
            "The conversation has %(tokens)s tokens, %(over)s more than the server's context of %(limit)s. "
            "Start a new conversation or raise the context size."
        ),
        {"tokens": int(tokens), "over": over, "limit": int(limit)},
    )


def _text(value: object) -> str:
    # NUL cannot be stored in PostgreSQL, and half a surrogate pair cannot be encoded.
    if not isinstance(value, str) or not value:
        return ""
    if value.isascii():
        return value.replace("\0", "")
    return value.encode("utf-8", "replace").decode("utf-8").replace("\0", "")


def _mapping(value: object) -> dict[str, Any] | None:
    return value if isinstance(value, dict) else None


def _number(value: object) -> float | int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) < MAX_NUMBER else None  # false for what is not a number


def _progress(value: object) -> PromptProgress | None:
    if not isinstance(value, dict):
        return None
    processed, total = _number(value.get("processed")), _number(value.get("total"))
    if processed is None or not total:
        return None
    return PromptProgress(int(processed), int(total))
