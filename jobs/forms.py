"""Forms of the jobs app: what a page gives to a service."""

from django import forms


def path_input(example: str) -> forms.TextInput:
    """Return a control for a path, with an example in it."""
    return forms.TextInput({"class": "form-control mono", "spellcheck": "false", "placeholder": example})


class PanelForm(forms.Form):
    """A form whose controls have Tabler's classes, and whose errors are tied to their field."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        for field in self.fields.values():
            kind = "form-select" if isinstance(field.widget, forms.Select) else "form-control"
            field.widget.attrs.setdefault("class", kind)
