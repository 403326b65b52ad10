"""The source of a matcher while it is being written."""

from __future__ import annotations

from typing import Any


class Writer:
    """Lines of Python, and the objects that they refer to.

    Attributes:
        namespace: the global names of the generated code.
    """

    def __init__(self, namespace: dict[str, Any]) -> None:
        self.namespace = namespace
        self._lines: list[str] = []

    def line(self, text: str, depth: int = 1) -> None:
        """Add a line, indented."""
        self._lines.append("    " * depth + text)

    def test(self, condition: str, answer: str, depth: int = 1) -> None:
        """Add a guard: if the condition holds, the matcher returns the answer."""
        self.line(f"if {condition}:", depth)
        self.line(f"return {answer}", depth + 1)

    def reason(self, call: str, depth: int = 1) -> None:
        """Add a guard that calls a check: if it gives a reason, the matcher returns that."""
        self.line(f"reason = {call}", depth)
        self.test("reason is not None", "reason", depth)

    def constant(self, prefix: str, value: Any) -> str:
        """The global name of an object."""
        name = f"{prefix}{sum(key.startswith(prefix) for key in self.namespace)}"
        self.namespace[name] = value
        return name

    def literal(self, value: Any) -> str:
        """The Python expression for numbers, strings and tuples of them; infinities have no literal."""
        text = repr(value)
        return self.constant("VALUE", value) if "inf" in text or "nan" in text else text

    def source(self) -> str:
        """The text so far."""
        return "\n".join(self._lines) + "\n"
