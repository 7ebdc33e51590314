"""Messages of the pure modules, and of rows, in the reader's language."""

import json
from typing import Any

from django.utils.translation import gettext

from controlpanel.lib.text import Message


def translate(message: Message) -> str:
    """Return the message in the active language; parameters that are messages are translated too."""
    text = gettext(message.text)
    if not message.params:
        return text
    return text % {
        key: translate(value) if isinstance(value, Message) else value
        for key, value in message.params.items()
    }


def to_json(message: Message) -> dict[str, Any]:
    """Return plain values for a JSON column."""
    return {"text": message.text, "params": {key: _plain(value) for key, value in message.params.items()}}


def from_json(value: dict[str, Any]) -> Message:
    """Rebuild what to_json returned."""
    params = {
        key: from_json(item) if isinstance(item, dict) else item for key, item in value["params"].items()
    }
    return Message(value["text"], params)


def stored(message: Message) -> str:
    """Return a message as a text column keeps it."""
    return json.dumps(to_json(message), ensure_ascii=False)


def shown(text: str) -> str:
    """Return what stored() made of a message in the active language; any other text as it is."""
    try:
        return translate(from_json(json.loads(text)))
    except (ValueError, KeyError, TypeError, AttributeError):
        return text


def _plain(value: object) -> Any:
    if isinstance(value, Message):
        return to_json(value)
    return value if isinstance(value, int | float) else str(value)
