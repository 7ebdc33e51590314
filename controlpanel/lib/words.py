"""Messages of the pure modules, and of rows, in the reader's language."""

import json

from django.utils.translation import gettext

from controlpanel.lib.text import Message, message_of, plain


def translate(message: Message) -> str:
    """Return the message in the active language; parameters that are messages are translated too."""
    text = gettext(message.text)
    if not message.params:
        return text
    return text % {
        key: translate(value) if isinstance(value, Message) else value
        for key, value in message.params.items()
    }


def stored(message: Message) -> str:
    """Return a message as a text column keeps it."""
    return json.dumps(plain(message), ensure_ascii=False)


def shown(text: str) -> str:
    """Return what stored() made of a message in the active language; any other text as it is."""
    return translate(message_in(text))


def message_in(text: str) -> Message:
    """Return the message of which stored() made a text; any other text is its own message."""
    try:
        message = message_of(json.loads(text))
        translate(message)
        return message
    except (ValueError, KeyError, TypeError, AttributeError):
        return Message("%(text)s", {"text": text})
