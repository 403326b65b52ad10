"""The pass library of graphopt.

Each family is a folder, each rule family a file in it, and `PASSES` of every family says which pass is where; nothing
is imported before a pass is asked for. It registers through the entry point `graphopt.passes`, as anyone's library can.
"""

from graphopt_passes.algorithm import PASSES as ALGORITHM
from graphopt_passes.elimination import PASSES as ELIMINATION
from graphopt_passes.folding import PASSES as FOLDING
from graphopt_passes.fusion import PASSES as FUSION
from graphopt_passes.layout import PASSES as LAYOUT


def catalogue() -> dict[str, str]:
    """Every pass of the library by name, as `module:Class`."""
    return {
        name: f"graphopt_passes.{place}"
        for passes in (ELIMINATION, FOLDING, FUSION, ALGORITHM, LAYOUT)
        for name, place in passes.items()
    }
