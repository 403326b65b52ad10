"""What the standard's inference states wrongly: sizes of 0 for outputs of `Attention` whose sizes it does not know."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

_MISLED = "Attention"


def without_wrong_sizes(proto: onnx.GraphProto, inferred: onnx.GraphProto) -> bool:
    """Keep inference from stating such sizes the next time: the nodes become unknown ones, with what is right of them.

    Args:
        proto: the graph that inference was given; it is changed.
        inferred: what inference made of it.

    Returns:
        Whether there was anything to change, so that inference has to run again.
    """
    found = False
    types: dict[str, onnx.TypeProto] | None = None
    for node, result in zip(proto.node, inferred.node, strict=True):
        if node.op_type == _MISLED and node.domain == "":
            types = types or {info.name: info.type for info in (*inferred.value_info, *inferred.output)}
            known = {name: types[name] for name in node.output if name in types}
            if sum(without_zeros(type_proto) for type_proto in known.values()):
                found = True
                node.op_type = "Unknown" + _MISLED
                for name, type_proto in known.items():
                    _state(proto, name, type_proto)
        for inner, inner_inferred in zip(_graphs(node), _graphs(result), strict=False):
            found |= without_wrong_sizes(inner, inner_inferred)
    return found


def without_zeros(type_proto: onnx.TypeProto) -> bool:
    """Make dimensions of 0 unknown ones. Returns whether there were any."""
    zeros = [dim for dim in type_proto.tensor_type.shape.dim if dim.HasField("dim_value") and dim.dim_value == 0]
    for dim in zeros:
        dim.Clear()
    return bool(zeros)


def _state(proto: onnx.GraphProto, name: str, type_proto: onnx.TypeProto) -> None:
    for info in proto.output:
        if info.name == name:
            info.type.CopyFrom(type_proto)
            return
    proto.value_info.add(name=name, type=type_proto)


def _graphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    return (attribute.g for attribute in node.attribute if attribute.type == onnx.AttributeProto.GRAPH)
