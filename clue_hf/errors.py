"""The one exception for a user's mistake: what is wrong, where, what to do. Commands print it and exit with 2."""


class UserError(ValueError):
    """An error that the user can fix; the message says how."""
