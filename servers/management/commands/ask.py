"""Ask a server one question."""

from pathlib import Path
from typing import Any

from asgiref.sync import async_to_sync
from django.core.management.base import CommandParser
from django.utils.translation import gettext as _

from controlpanel.lib.cli import JsonCommand
from controlpanel.lib.errors import Refused
from jobs.services.audit import Actor
from servers.domain.chat import MAX_IMAGE, ChatOptions, image_data_uri
from servers.services.answers import ask
from servers.services.conversations import checked_prompt
from servers.services.lookup import find_profile


class Command(JsonCommand):
    """`manage.py ask PROFILE "question"`: the answer of the profile's server."""

    help = "Ask the server of a profile one question, with or without images."

    def arguments(self, parser: CommandParser) -> None:
        """Add profile, question, images and the limit of the answer."""
        parser.add_argument("profile", help="name or slug of the server profile")
        parser.add_argument("prompt", help="the question")
        parser.add_argument(
            "--image", action="append", default=[], type=Path, metavar="FILE", help="PNG, JPEG, GIF or WebP"
        )
        parser.add_argument("--max-tokens", type=int, metavar="N", help="end the answer after N tokens")

    def answer(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return {"answer", "timings"}."""
        limit = options["max_tokens"]
        if limit is not None and limit < 1:
            raise Refused(_("--max-tokens must be at least 1."), code="bad_option")
        profile = find_profile(options["profile"])
        prompt = checked_prompt(options["prompt"])
        images = [_image(path) for path in options["image"]]
        found = async_to_sync(ask)(Actor.cli(), profile, prompt, images, ChatOptions(max_tokens=limit))
        return {"answer": found.answer, "timings": found.timings}

    def text(self, value: dict[str, Any]) -> str:
        """Return the answer alone."""
        return str(value["answer"])


def _image(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return image_data_uri(file.read(MAX_IMAGE + 1))
    except OSError as error:
        raise Refused(
            _("The image %(path)s cannot be read: %(why)s.") % {"path": path, "why": error.strerror},
            code="bad_image",
        ) from error
    except ValueError as error:
        raise Refused(f"{path}: {_(str(error))}", code="bad_image") from error
