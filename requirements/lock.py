"""Write what this environment has of the development dependencies, as constraints for another: `make lock`."""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path

EXTRAS = re.compile(r"extra\s*==\s*[\"'](\w+)[\"']")


def closure(name: str, extras: frozenset[str], found: dict[str, str]) -> dict[str, str]:
    """Versions of a distribution, of its extras, and of all that they need."""
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:  # for another system or Python
        return found
    for requirement in metadata.requires(name) or []:
        wanted, _, marker = requirement.partition(";")
        extra = EXTRAS.search(marker)
        if extra is not None and extra[1] not in extras:
            continue
        each = re.match(r"\s*([\w.-]+)(?:\[([\w,\s-]*)\])?", wanted)
        assert each is not None, requirement
        key = re.sub(r"[-_.]+", "-", each[1]).lower()
        inner = frozenset(part.strip() for part in (each[2] or "").split(",") if part.strip())
        if key not in found or not inner <= extras:
            closure(key, inner | (extras if key == name else frozenset()), found)
    return found


if __name__ == "__main__":
    versions = closure("graphopt", frozenset({"dev"}), {})
    for own in ("graphopt", "pip"):  # pip is there before anything is installed
        versions.pop(own, None)
    lines = [f"{name}=={version}" for name, version in sorted(versions.items())]
    Path(sys.argv[1]).write_text("\n".join(["# Written by `make lock`.", *lines]) + "\n")
