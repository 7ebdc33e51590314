"""The one exception by which a service says no in words."""


class Refused(Exception):
    """A request that cannot be done as asked; str() is a sentence for the user.

    `field` names the form field it belongs to, `code` a short word for programs.
    """

    def __init__(self, message: object, field: str = "", code: str = "refused") -> None:
        super().__init__(str(message))
        self.field = field
        self.code = code
