"""How one turn is shown: the same partial for the page, for htmx and for the end of a stream."""

from typing import Any

from django.template.loader import render_to_string
from django.utils.formats import number_format
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from servers.models import Turn
from servers.services import markdown
from servers.services.conversations import can_continue
from servers.views.turn_live import LiveAnswer


def card(turn: Turn, is_last: bool) -> dict[str, Any]:
    """Return the context of `_turn.html`; only the last turn can be continued or made anew."""
    return {
        **part(turn, None if turn.has_ended else LiveAnswer.of(turn.answer)),
        "numbers": numbers_line(turn.timings),
        "cut_by_limit": turn.timings.get("finish_reason") == "length",
        "may_continue": is_last and can_continue(turn),
        "may_regenerate": is_last and turn.has_ended,
    }


def part(turn: Turn, live: LiveAnswer | None) -> dict[str, Any]:
    """Return the context of `_turn_part.html`: the answer whole, or its complete blocks and its open tail."""
    if live is None:
        return {"turn": turn, "html": _whole(turn)}
    # Both texts are escaped or cleaned where they are made.
    return {"turn": turn, "blocks": mark_safe(live.html), "tail": live.tail}


def render_card(turn: Turn) -> str:
    """Return the turn as HTML."""
    is_last = not turn.conversation.turns.filter(position__gt=turn.position).exists()
    return render_to_string("servers/_turn.html", card(turn, is_last))


def render_part(turn: Turn, live: LiveAnswer) -> str:
    """Return the reasoning and the answer of a turn that is still streaming."""
    return render_to_string("servers/_turn_part.html", part(turn, live))


def _whole(turn: Turn) -> SafeString:
    current = turn.html_version == markdown.VERSION
    made = turn.answer_html if current else markdown.answer_html(turn.answer)
    return mark_safe(markdown.with_buttons(made))


def numbers_line(timings: dict[str, Any]) -> str:
    """Return the timings of an answer in one line; what is unknown is left out."""
    pieces = []
    if (first := timings.get("first_token_s")) is not None:
        pieces.append(_("first token %(seconds)s s") % {"seconds": _rounded(first, 2)})
    if (speed := timings.get("prompt_per_second")) is not None:
        pieces.append(_("prompt %(speed)s t/s") % {"speed": _rounded(speed, 0)})
    if (speed := timings.get("predicted_per_second")) is not None:
        pieces.append(_("generation %(speed)s t/s") % {"speed": _rounded(speed, 1)})
    if (tokens := timings.get("predicted_n")) is not None:
        words = ngettext("%(number)s token", "%(number)s tokens", int(tokens))
        pieces.append(words % {"number": f"{int(tokens):,}"})
    if cached := timings.get("cache_n"):
        pieces.append(_("%(number)s from the cache") % {"number": f"{int(cached):,}"})
    if (rate := timings.get("acceptance")) is not None:
        pieces.append(
            _("accepted %(percent)s %% (%(accepted)s/%(drafted)s)")
            % {
                "percent": _rounded(rate * 100, 0),
                "accepted": timings["draft_n_accepted"],
                "drafted": timings["draft_n"],
            }
        )
    if (used := timings.get("context_used")) is not None:
        pieces.append(_context(int(used), timings.get("n_ctx")))
    if timings.get("measured") and pieces:
        pieces.append(_("measured by the panel"))
    return " · ".join(pieces)


def _context(used: int, limit: int | None) -> str:
    if limit is None:
        return _("context %(used)s") % {"used": f"{used:,}"}
    return _("context %(used)s of %(limit)s") % {"used": f"{used:,}", "limit": f"{limit:,}"}


def _rounded(value: float, digits: int) -> str:
    # number_format alone cuts digits off.
    return number_format(round(value, digits), digits)
