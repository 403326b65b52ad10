"""Where passes are."""

from graphopt.naming import pass_name


def passes_of(package: str, *rows: tuple[str, ...]) -> dict[str, str]:
    """The passes of a package by name, as `module:Class`, in order: of each row the module and classes in it."""
    return {pass_name(name): f"{package}.{module}:{name}" for module, *names in rows for name in names}
