"""The one error for mistakes a user can mend."""

__all__ = ["UserError"]


class UserError(Exception):
    """A mistake in what the user asked for; its text is one line, never followed by a traceback.

    Parameters
    ----------
    message : str
        Where (file, dotted key), what was expected, and the nearest valid name.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))
