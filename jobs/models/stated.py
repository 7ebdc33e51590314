"""What rows with a state and an error say of themselves."""

from typing import Any

from controlpanel.lib.words import shown


class Stated:
    """For models with the columns `state`, whose choices are `State`, and `error`."""

    State: Any
    state: Any
    error: Any

    @property
    def word(self) -> str:
        """The state in words; get_state_display() would translate all states to find one."""
        return str(self.State(self.state).label)

    @property
    def error_text(self) -> str:
        """The error in the reader's language."""
        return shown(self.error)
