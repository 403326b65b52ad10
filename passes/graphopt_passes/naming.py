"""Names of passes: those of their classes, in small letters."""

from __future__ import annotations

import re

_WORD = re.compile(r"(?<!^)(?=[A-Z])|(?<=[a-z])(?=\d[a-z])")


def passes_of(package: str, *rows: tuple[str, ...]) -> dict[str, str]:
    """The passes of a package by name, as `module:Class`, in order: of each row the module and classes in it."""
    return {_WORD.sub("_", name).lower(): f"{package}.{module}:{name}" for module, *names in rows for name in names}
