"""The last phase: each group becomes one blocked node, with the reorders that its neighbours need."""

from __future__ import annotations

from graphopt.ir import Value
from graphopt_passes.layout.emitter import Blocked, Emitter
from graphopt_passes.layout.form import Group


def emit(group: Group, emitter: Emitter, rule: str) -> None:
    """Replace a group.

    Args:
        group: the group; nodes before it have their final form.
        emitter: makes the operators.
        rule: name of the pass.
    """
    rw, node = emitter.rw, group.last
    rw.begin(rule, node)
    emitter.begin()
    results = group.form.build(emitter, group)
    blocked: list[Blocked] = []
    if isinstance(results, Value):
        plain = [results]
    else:
        for value, layout in results:
            emitter.state_type(value, layout, group.form.sizes)
        plain = [emitter.leave(value, layout) for value, layout in results]
        blocked = [Blocked(value, layout, group.lanes) for value, layout in results]
    rw.replace(node, plain, detail=str(group))
    olds = node.results
    emitter.commit(dict(zip(olds, blocked, strict=False)), dict(zip(olds, plain, strict=False)))
