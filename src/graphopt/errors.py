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


class VerificationError(GraphoptError, AssertionError):
    """The optimized model was not shown to give the original's results; the message says where they differ."""
