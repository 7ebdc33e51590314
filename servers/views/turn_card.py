"""How one turn is shown: the same partial for the page, for htmx and for the end of a stream."""

from typing import Any

from django.template.loader import render_to_string
from django.utils.formats import number_format
from django.utils.translation import gettext as _

from servers.models import Turn
from servers.services.conversations import can_continue


def card(turn: Turn, is_last: bool) -> dict[str, Any]:
    """Return the context of `_turn.html`; only the last turn can be continued or made anew."""
    return {
        "turn": turn,
        "numbers": numbers_line(turn.timings),
        "cut_by_limit": turn.timings.get("finish_reason") == "length",
        "may_continue": is_last and can_continue(turn),
        "may_regenerate": is_last and turn.has_ended,
    }


def render_card(turn: Turn) -> str:
    """Return the turn as HTML."""
    is_last = not turn.conversation.turns.filter(position__gt=turn.position).exists()
    return render_to_string("servers/_turn.html", card(turn, is_last))


def render_part(turn: Turn) -> str:
    """Return the stored reasoning and answer of a turn that is still streaming."""
    return render_to_string("servers/_turn_part.html", {"turn": turn})


def numbers_line(timings: dict[str, Any]) -> str:
    """Return the timings of an answer in one line; what is unknown is left out."""
    pieces = []
    if (speed := timings.get("prompt_per_second")) is not None:
        pieces.append(_("prefill %(speed)s t/s") % {"speed": _rounded(speed, 0)})
    if (first := timings.get("first_token_s")) is not None:
        pieces.append(_("first token %(seconds)s s") % {"seconds": _rounded(first, 2)})
    if (speed := timings.get("predicted_per_second")) is not None:
        pieces.append(_("%(speed)s t/s") % {"speed": _rounded(speed, 1)})
    if (rate := timings.get("acceptance")) is not None:
        pieces.append(
            _("accepted %(percent)s%% (%(accepted)s/%(drafted)s)")
            % {
                "percent": _rounded(rate * 100, 0),
                "accepted": timings["draft_n_accepted"],
                "drafted": timings["draft_n"],
            }
        )
    return " · ".join(pieces)


def _rounded(value: float, digits: int) -> str:
    # number_format alone cuts digits off.
    return number_format(round(value, digits), digits)
