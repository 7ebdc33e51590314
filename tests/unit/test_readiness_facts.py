"""What the host's own files and programs say, read into facts."""

from __future__ import annotations

import pytest

from jobs.domain.readiness_facts import CardSettings, pcie_generation, read_card_settings


@pytest.mark.parametrize(
    ("text", "generation"),
    [
        ("2.5 GT/s PCIe", 1),
        ("5.0 GT/s PCIe", 2),
        ("8.0 GT/s PCIe", 3),
        ("16.0 GT/s PCIe", 4),
        ("32.0 GT/s PCIe", 5),
        ("64.0 GT/s PCIe", 6),
        ("8 GT/s", 3),
        ("Unknown", None),
        ("", None),
        ("7.0 GT/s", None),
    ],
)
def test_link_speeds_are_generations(text: str, generation: int | None) -> None:
    assert pcie_generation(text) == generation


def test_the_answer_of_nvidia_smi_is_read_and_what_it_does_not_know_stays_unknown() -> None:
    text = (
        "0, Enabled, 350.00, 2100\n1, Disabled, [N/A], [Not Supported]\nFailed to read\n2, [N/A], -1, inf\n"
    )
    assert read_card_settings(text) == (
        CardSettings(0, persistence=True, power_default_w=350.0, clock_max_mhz=2100),
        CardSettings(1, persistence=False),
        CardSettings(2),
    )
