"""The exceptions of graphopt, one class for each party that can fix the cause."""


class GraphoptError(Exception):
    """Base of all graphopt errors. The message states what was expected and what was found."""


class ModelError(GraphoptError):
    """The given model or file is not usable; its provider can fix it."""


class UsageError(GraphoptError):
    """An argument is wrong (an unknown pass, an impossible target); the caller can fix it."""


class PassError(GraphoptError):
    """A pass broke a rule of the engine or raised; the author of the pass can fix it."""


class EngineError(GraphoptError):
    """An invariant of graphopt itself does not hold; its authors can fix it."""


class PluginWarning(UserWarning):
    """Third-party passes are left out; the message states whose and why. Everything else works as without them."""


class Decline(Exception):  # noqa: N818 -- an answer, not an error
    """A rule leaves a node as it is; raised at the failed condition, caught by the driver, never seen by a user.

    With a reason it is a near miss: the operators match, but another condition fails. Without a reason the rule does
    not concern the node. The text is formatted on demand, since almost no reason is ever read; give it
    plain names and numbers, not values or nodes: it may be read after the graph changed.

    Args:
        reason: text in lower case, a `str.format` template if there are operands; left out
            if the rule does not concern the node.
        *operands: the arguments of the template.

    Examples:
        >>> str(Decline("{} output channels but {} scales", 8, 4))
        '8 output channels but 4 scales'
    """

    __slots__ = ()

    def __str__(self) -> str:
        reason, *operands = self.args or ("",)
        return str(reason.format(*operands)) if operands else str(reason)


class StaleError(Decline):
    """A rule continues from a node or value that an earlier change removed, perhaps its own.

    For a pass it is a near miss; a conversion, which has no second chance, reports it as an error of its own.
    """

    __slots__ = ()


class Tries:
    """Several attempts, one of which should succeed: a `Decline` ends the attempt that raises it, and is kept.

    Attributes:
        declined: the last `Decline` with a reason; without a reason if none has one.

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
    """The optimized model was not shown to give the original's results; the message states where they differ."""


def reason_of(error: Exception) -> str:
    """What went wrong: for an error of the system, its words alone, without the number and the name of the file."""
    return getattr(error, "strerror", None) or str(error)
