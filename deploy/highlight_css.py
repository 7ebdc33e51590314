"""Print the colours of code in answers: `python deploy/highlight_css.py > static/panel/css/highlight.css`."""

from __future__ import annotations

from pygments.style import StyleMeta
from pygments.styles import get_style_by_name
from pygments.token import STANDARD_TYPES, string_to_tokentype

# Of Pygments' styles those in which every colour has a contrast of at least 4.5 on the panel's ground.
STYLES = {"": "xcode", '[data-bs-theme="dark"] ': "one-dark"}


def rules(prefix: str, style: StyleMeta) -> list[str]:
    """Return one rule per look that differs from plain text, for all classes that share it."""
    classes: dict[str, list[str]] = {}
    for token, name in STANDARD_TYPES.items():
        look = style.style_for_token(string_to_tokentype(str(token).removeprefix("Token").lstrip(".")))
        parts = [f"color: #{look['color']}"] if look["color"] else []
        parts += ["font-weight: 600"] * look["bold"] + ["font-style: italic"] * look["italic"]
        if name and (parts or prefix):
            classes.setdefault("; ".join(parts) or "color: inherit", []).append(name)
    return [
        ", ".join(f"{prefix}.highlight .{name}" for name in sorted(names)) + f" {{ {look} }}"
        for look, names in classes.items()
    ]


def sheet() -> str:
    """Return the whole style sheet."""
    lines = ["/* Made by deploy/highlight_css.py; do not edit. */"]
    for prefix, name in STYLES.items():
        lines += rules(prefix, get_style_by_name(name))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(sheet(), end="")
