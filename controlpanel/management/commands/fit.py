"""manage.py fit --gguf F --gpus 24576,24576 -c 32768 ...: what a server will take of each graphics card."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser
from django.utils.translation import gettext as _

from controlpanel.lib.cli import JsonCommand
from controlpanel.lib.errors import Refused
from controlpanel.lib.words import translate
from controlpanel.llamacpp.gguf import GgufError, GgufHeader, examine, read_header
from controlpanel.llamacpp.memory import Device, EstimateError, estimate
from controlpanel.llamacpp.memory_flags import read_flags
from jobs.services.builds import capabilities_of, ready_build
from jobs.services.fits import NOT_JUDGED, Cards
from servers.services.learned import backend_of, learned_for

_MAX_GPUS = 64
_MAX_MIB = 100_000_000


class _Parser(CommandParser):
    """Leaves what it does not know to llama-server's own rules."""

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Return the known options, and all other words as `flags`."""
        known, others = self.parse_known_args(args, namespace)
        known.flags = others
        return known


class Command(JsonCommand):
    """The same estimate that a profile's form shows; nothing is loaded."""

    help = (
        "Estimate the memory of a server before it is started. All options that are not listed here are "
        "taken as llama-server takes them, such as -c 32768 -ngl all -ctk q8_0."
    )

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Return a parser that neither refuses nor completes llama-server's options."""
        parser = super().create_parser(prog_name, subcommand, allow_abbrev=False, **kwargs)
        # Django makes the parser itself and offers no other place to choose its class.
        parser.__class__ = _Parser
        return parser

    def arguments(self, parser: CommandParser) -> None:
        """Add the files, the build and the cards."""
        parser.add_argument("--gguf", required=True, type=Path, metavar="FILE", help="the model, first part")
        parser.add_argument("--mmproj", type=Path, metavar="FILE", help="its projector")
        parser.add_argument("--build", metavar="NAME", help="name of a registered build that is to run it")
        parser.add_argument(
            "--gpus", required=True, metavar="MIB[,MIB]", help="memory of each GPU in MiB; 0 for none"
        )

    def answer(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return {devices: [{name, terms, total, capacity}], host, verdict, why}; sizes in MiB."""
        devices = _devices(options["gpus"])
        build = None if options["build"] is None else ready_build(options["build"])
        caps = capabilities_of(build) if build else None
        try:
            model = examine(options["gguf"])
            mmproj: GgufHeader | None = None if options["mmproj"] is None else read_header(options["mmproj"])
            settings, dialect = read_flags(options.get("flags", ()), caps)
            learned = None
            if build is not None and caps is not None:
                backend = backend_of(caps, Cards(devices))
                learned = learned_for(build, model.parts[0].architecture, backend)
            found = estimate(model.parts, mmproj, settings, dialect, devices, learned)
        except GgufError as error:
            raise Refused(translate(error.message), code=error.code) from error
        except EstimateError as error:
            raise Refused(translate(error.message), code="no_estimate") from error
        return {
            "devices": [
                {
                    "name": fit.name,
                    "terms": _rounded(fit.terms),
                    "total": None if fit.total is None else round(fit.total, 3),
                    "capacity": fit.capacity,
                }
                for fit in found.devices
            ],
            "host": _rounded(found.host),
            "verdict": found.verdict,
            "why": [translate(message) for message in (*found.why, *(() if devices else (NOT_JUDGED,)))],
        }

    def text(self, value: dict[str, Any]) -> str:
        """One paragraph per card and one for main memory, then the verdict and what it rests on."""
        lines: list[str] = []
        for device in value["devices"]:
            lines.append(f"{device['name']}: {_mib(device['total'])} / {_mib(device['capacity'])}")
            lines += _terms(device["terms"])
        lines.append(_("Main memory:"))
        lines += _terms(value["host"])
        return "\n".join([*lines, value["verdict"], *(f"! {reason}" for reason in value["why"])])


def _rounded(terms: Mapping[str, float | None]) -> dict[str, float | None]:
    return {term: None if size is None else round(size, 3) for term, size in terms.items()}


def _terms(terms: Mapping[str, float | None]) -> list[str]:
    return [f"  {term:15} {_mib(size)}" for term, size in terms.items()]


def _mib(size: float | None) -> str:
    return _("unknown") if size is None else f"{size:.2f} MiB"


def _devices(text: str) -> tuple[Device, ...]:
    """Return the cards of a list of sizes; Refused when it is none."""
    sizes = text.split(",")
    plain = all(size.isascii() and size.isdigit() and int(size[:12]) <= _MAX_MIB for size in sizes)
    if not plain or len(sizes) > _MAX_GPUS:
        message = _("Give the memory of each GPU in MiB, such as 24576,24576; not %(value)s.")
        raise Refused(message % {"value": text[:60]}, "gpus", "bad_gpus")
    return tuple(Device(f"GPU{index}", float(size)) for index, size in enumerate(sizes) if int(size))
