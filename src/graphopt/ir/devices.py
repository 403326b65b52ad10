"""Device configurations of nodes: their devices, and how tensors, by name, are sharded among them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from onnx import NodeProto

if TYPE_CHECKING:
    from graphopt.ir.graph import Node
    from graphopt.ir.value import Value


def devices_of(
    node: Node, inputs: Sequence[Value | None] | None = None, outputs: Sequence[Value | None] | None = None
) -> NodeProto | None:
    """A proto with a node's device configurations, for a copy of the node; None if it has none.

    Args:
        node: the node.
        inputs: the inputs of the node that the copy keeps, at their positions; all if None.
        outputs: the same for its outputs.
    """
    source = node._proto if node._devices is None else node._devices
    if source is None or not source.device_configurations:
        return None
    told = NodeProto(input=names_of(node.inputs), output=names_of(node.outputs))
    state(source, told, elsewhere=node._devices is not None)
    if inputs is None and outputs is None:
        return told
    part = NodeProto(
        input=names_of(node.inputs if inputs is None else inputs),
        output=names_of(node.outputs if outputs is None else outputs),
    )
    state(told, part)
    return part


def names_of(values: Sequence[Value | None]) -> list[str]:
    """The names of values; empty for one that is left out."""
    return ["" if value is None else value.name for value in values]


def state(source: NodeProto, target: NodeProto, *, elsewhere: bool = False) -> None:
    """Copy the device configurations of a node to another, with the names of its tensors.

    A tensor at the same position is the same tensor under another name. The sharding of a missing tensor is left out.

    Args:
        source: the node to copy from.
        target: the node to copy to; its inputs and outputs are set already.
        elsewhere: whether `source` is in another graph, where the same name may mean another tensor.
    """
    names: dict[str, str] = {}
    for before, after in ((source.output, target.output), (source.input, target.input)):
        moved = set[str]() if elsewhere else {*source.input, *source.output}
        names |= {old: new for old, new in zip(before, after, strict=False) if new not in moved}
    if not elsewhere:
        names |= {name: name for name in (*target.input, *target.output)}
    del target.device_configurations[:]
    for configuration in source.device_configurations:
        stated = target.device_configurations.add()
        stated.CopyFrom(configuration)
        del stated.sharding_spec[:]
        for spec in configuration.sharding_spec:
            if name := names.get(spec.tensor_name):
                stated.sharding_spec.add().CopyFrom(spec)
                stated.sharding_spec[-1].tensor_name = name
