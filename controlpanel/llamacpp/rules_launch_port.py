"""Rules for the address that a server listens on."""

from __future__ import annotations

from collections.abc import Iterable

from controlpanel.lib.text import N_
from controlpanel.llamacpp.rule_types import COMMON, Change, Found, Rule

_BIND = r"couldn't bind HTTP server socket, hostname: (?P<host>[^\s,]{1,200}), port: "


def _free_port(found: Found) -> Iterable[Change]:
    """Let the panel choose a free port, unless it did so already."""
    return [] if found.facts.get("port_fixed") is False else [Change("port", None)]


PORT_RULES = (
    Rule(
        "port_not_permitted",
        (_BIND + r"(?P<port>\d{1,3}|10[01]\d|102[0-3])\s*$",),
        N_("A server of this user may not listen on port %(port)s"),
        N_(
            "Ports below 1024 belong to the system. Choose a higher one in the field “Port”, or leave it "
            "empty."
        ),
        _free_port,
        explains=("port_in_use", "server_not_bound"),
    ),
    Rule(
        "port_in_use",
        (
            _BIND + r"(?P<port>\d{4,5})",
            r"bind(?:\(\))?: [Aa]ddress already in use",
        ),
        N_("The server cannot listen on its port: another program has it"),
        N_(
            "Stop the other program (“ss -ltnp” shows which one has port %(port)s), choose another port, "
            "or leave the field “Port” empty so that the panel takes a free one. If the port is free, the "
            "address %(host)s does not belong to this machine."
        ),
        _free_port,
        explains=("server_not_bound",),
        passing=True,
    ),
    Rule(
        "server_not_bound",
        (r"exiting due to HTTP server error",),
        N_("The server could not open its port"),
        N_("Choose another port in the field “Port”, or leave it empty; then start the server again."),
        _free_port,
        rank=COMMON,
        passing=True,
    ),
)
