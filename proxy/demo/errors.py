"""The one error of the stack."""


class StackError(Exception):
    """The stack can't do what was asked; the text names the part, the likely cause and the next step."""


class StackCancelled(StackError):
    """The start was called off from outside while it waited."""
