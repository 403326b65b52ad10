"""The exceptions that graphopt raises, one class per person who can act on it."""


class GraphoptError(Exception):
    """Base of all graphopt errors. The message says what was expected and what was found."""


class ModelError(GraphoptError):
    """The model or file given is not usable; its provider can fix it."""


class UsageError(GraphoptError):
    """An argument is wrong (an unknown pass, an impossible target); the caller can fix it."""


class PassError(GraphoptError):
    """A pass broke a rule of the engine or raised; the author of the pass can fix it."""


class EngineError(GraphoptError):
    """An invariant of graphopt itself does not hold; its authors can fix it."""


class PluginWarning(UserWarning):
    """Passes of a third party are left out; the message says whose and why. Everything else works as without them."""


class Decline(Exception):  # noqa: N818 -- an answer, not an error
    """A rule leaves a node as it is; raised where that turns out, caught by the driver, never seen by a user.

    With a reason it is a near miss: the operators fitted and something else did not. Without one the node is not the
    rule's business. The text is formatted only when somebody asks for it, since almost no reason is ever read; give it
    plain names and numbers, not values or nodes: it may be read after the graph changed.

    Args:
        reason: text in lower case, a `str.format` template when there are operands; left out
            when there is nothing to say.
        *operands: what fills the template.

    Examples:
        >>> str(Decline("{} output channels but {} scales", 8, 4))
        '8 output channels but 4 scales'
    """

    __slots__ = ()

    def __str__(self) -> str:
        reason, *operands = self.args or ("",)
        return str(reason.format(*operands)) if operands else str(reason)


class Tries:
    """Several tries, of which one is to succeed: a `Decline` ends the one that it is raised in, and is kept.

    Attributes:
        declined: the last of them with a reason; one without where none has any.

    Examples:
        >>> tries = Tries()
        >>> for number in (1, 2):
        ...     with tries:
        ...         raise Decline("{} is too few", number)
        >>> str(tries.declined)
        '2 is too few'
    """

    __slots__ = ("declined",)

    def __init__(self) -> None:
        self.declined = Decline()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, Decline) and error.args:
            self.declined = error
        return isinstance(error, Decline)


class VerificationError(GraphoptError, AssertionError):
    """The optimized model was not shown to give the original's results; the message says where they differ."""
