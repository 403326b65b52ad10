"""The conversion of half precision to float32: which operators, at which price, and the rewrite."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from math import pi, sqrt

import ml_dtypes
import numpy as np
from onnx import TensorProto

from graphopt.analysis.purity import is_deterministic
from graphopt.ir import HALF_TYPES, Graph, Node, Value
from graphopt.ir.schema import RUNTIMES_OWN
from graphopt.records import dataclass
from graphopt.rewrite import Rewriter
from graphopt.rewrite.operands import paired, parameters
from graphopt_passes.algorithm.work import count
from graphopt_passes.elementwise import MOVES
from graphopt_passes.layout.doubles import of_normalizations
from graphopt_passes.layout.mincut import INFINITE, MinimumCut, Places, cheapest, price_change
from graphopt_passes.shared import Shared

_BRAIN, _SINGLE = TensorProto.BFLOAT16, TensorProto.FLOAT
_MOST = 1 << 30
"""The most bytes of weights in float32; a model whose weights would take more stays as it is."""
_GROWTH = 2
"""The factor by which weights grow."""
_TIE = 1e-3
_KNOWN = {
    (kind, float(kind.type(each))): each
    for kind in (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
    for each in (sqrt(2), sqrt(0.5), sqrt(2 / pi), 0.044715)
}
"""Constants by which rules recognize activations in float32, by their values in half precision."""
_MOVING = MOVES | {
    "Cast", "Compress", "DequantizeLinear", "GatherElements", "GatherND", "ReverseSequence", "ScatterElements",
    "ScatterND", "Shape", "Size", "TensorScatter", "Where",
}  # fmt: skip
"""Operators that have kernels for both types; all but one do no arithmetic on floats."""
_NO_BRAIN = frozenset({
    "Attention", "DepthToSpace", "DequantizeLinear", "Expand", "Size", "SpaceToDepth", "Tile", "Where",
    "com.microsoft::RotaryEmbedding",
})  # fmt: skip
"""Operators with kernels for float16 and none for bfloat16, in which they do not even load."""
_BRAIN_ALONE = frozenset({"com.microsoft::GroupQueryAttention", "com.microsoft::MatMulNBits"})
"""Operators of ONNX Runtime that stay in float16, for which their kernels are as fast, and have none for bfloat16."""
_PER_KEY, _PER_SCORE = 0.8, 1 / 32
"""The extra time of `Attention` in half precision for each element of its keys, and for each of these and row of its
queries, in units of a cast element, with heads of 64 (a row and 1024 positions of 8 heads: 811 us, 723 in float32, 1424
with the casts of a cache; 64 rows without a cache 1290, 852 and 1013)."""
_CONTRIB = frozenset({
    "com.microsoft::Attention", "com.microsoft::BiasGelu", "com.microsoft::EmbedLayerNormalization",
    "com.microsoft::FastGelu", "com.microsoft::FusedMatMul", "com.microsoft::Gelu", "com.microsoft::MultiHeadAttention",
    "com.microsoft::QuickGelu", "com.microsoft::SkipLayerNormalization",
    "com.microsoft::SkipSimplifiedLayerNormalization", "com.microsoft::RotaryEmbedding", RUNTIMES_OWN,
})  # fmt: skip
"""Operators of ONNX Runtime whose float operands and results all have one type, float32 or half precision."""
_ALIKE = frozenset({"com.microsoft::RotaryEmbedding", RUNTIMES_OWN})
"""Those of `_CONTRIB` whose kernels for both types take the same time (21 us for 64 rows of 1024): casts decide."""
_APART = frozenset({"BitCast", "If", "Loop", "QuantizeLinear", "Scan"})
"""Operators that keep their type: a number that is not rounded to float16 may be quantized to the next step."""


@dataclass(frozen=True, slots=True)
class _Wide:
    """A node in float32.

    Attributes:
        node: the node.
        places: the positions of the inputs that become float32.
        made: for each output whether it becomes float32.
    """

    node: Node
    places: tuple[int, ...]
    made: tuple[bool, ...]

    gives = True

    @property
    def operands(self) -> list[Value]:
        """The values in half precision that it reads."""
        return [self.node.operand(at) for at in self.places]


def widen(graph: Graph, ops: Collection[str], rw: Rewriter) -> None:
    """Convert the nodes of a graph from half precision to float32 where that takes the least time.

    Nothing is gained unless one of `ops` can be in float32.
    """
    doubles = of_normalizations(graph)
    forms = {form.node: form for form in _forms(graph, doubles)}
    if not any(form.node.op in ops for form in forms.values()):
        return
    size = 2 * sum(_weights(forms.values()))
    if size > _MOST or (size and rw.options.max_weight_growth < _GROWTH):
        rw.decline("the weights would take {} bytes in float32", size, node=next(iter(forms)))
        return

    def price(cut: MinimumCut, place: Places, value: Value, maker: int | None, readers: list[Node]) -> None:
        """Charge a cast for each type in which a value is needed and not computed."""
        if (value.dtype in HALF_TYPES or value in doubles) and not value.is_const:
            wanted = bool(value.output_count) or len(readers) < len(value.users)
            price_change(cut, place, count(value.shape or ()), maker, readers, wanted=wanted)

    chosen, _ = cheapest(forms, {node: _price(node) for node in forms}, price)
    writer = _Writer(rw)
    for node, form in forms.items():
        if node in chosen:
            with rw.attempt(node):
                writer.write(form)


def _forms(graph: Graph, doubles: set[Value]) -> Iterator[_Wide]:
    """The nodes that can compute in float32 instead of half precision, or of float64 between casts from and to it."""

    def is_narrowed(value: Value | None) -> bool:
        return value in doubles or _is_half(value)

    for node in graph:
        if (node.domain and not _is_contrib(node)) or node.op in _APART or not _is_deterministic(node):
            continue
        places = tuple(at for at, value in enumerate(node.inputs) if is_narrowed(value))
        converts = node.op == "Cast" or (node.inputs and any(value in doubles for value in node.results))
        if not converts and not (places and _are_tensors(node) and _in_singles(node) and _may_be_wide(node)):
            continue
        made = tuple(map(is_narrowed, node.outputs))
        if places or any(made):
            yield _Wide(node, places, made)


def _is_contrib(node: Node) -> bool:
    return node.op in _CONTRIB or (node.op in _BRAIN_ALONE and _has_brain(node))


def _is_deterministic(node: Node) -> bool:
    """Whether a node is deterministic once its cache is cast, so that it writes into no cache of its caller."""
    return node.op in _BRAIN_ALONE or is_deterministic(node)


def _has_brain(node: Node) -> bool:
    return any(x is not None and x.dtype == _BRAIN for x in node.inputs)


def _is_half(value: Value | None) -> bool:
    return value is not None and value.dtype in HALF_TYPES


def _may_be_wide(node: Node) -> bool:
    """Whether the type parameters of half-precision operands, which such results share, allow float32."""
    if _is_contrib(node):
        return True
    known = parameters(node.op_type, "", node.graph.opset())
    read, given = (
        [at for value, at in paired(values, each) if _is_half(value)]
        for values, each in zip((node.inputs, node.outputs), known, strict=True)
    )
    # The result of DequantizeLinear has a type parameter of its own since opset 23, and that of the scale before.
    names = {at.name for at in read} | ({at.name for at in given} if node.op == "DequantizeLinear" else set())
    return bool(read) and all(at.name in names for at in given) and all(_SINGLE in at.allowed for at in read)


def _are_tensors(node: Node) -> bool:
    """Whether every element type is known: no sequence keeps the old type, and no unknown type mixes with float32."""
    return all(x.dtype is not None for x in (*node.inputs, *node.outputs) if x is not None)


def _in_singles(node: Node) -> bool:
    """Whether no attribute makes a node compute in another type than float32."""
    types = {node.attr("stash_type", _SINGLE), node.attr("softmax_precision", _SINGLE)}
    return types == {_SINGLE} and not node.subgraphs


def _weights(forms: Iterable[_Wide]) -> Iterator[int]:
    known = dict.fromkeys(value for form in forms for value in form.operands if value.is_const)
    return (tensor.nbytes for value in known if (tensor := value.constant_tensor) is not None)


def _price(node: Node) -> tuple[float, float]:
    """The cost of a node in half precision, and in float32."""
    if node.op in (_NO_BRAIN | _BRAIN_ALONE) and _has_brain(node):
        return INFINITE, 0.0
    if node.op in _ALIKE or (node.op in _MOVING and node.attr("reduction", "none") == "none"):
        return 0.0, _TIE
    if node.op == "Attention":  # alone has kernels for both types and reads a cache, which may be much larger
        rows = count((node.operand(0).shape or ())[-2:-1])
        keys = sum(count(x.shape or ()) for x in node.inputs[1:5:3] if x is not None)
        return keys * (_PER_KEY + rows * _PER_SCORE), 0.0
    return INFINITE, 0.0


class _Writer(Shared):
    """Writes nodes in float32, and casts of their results for other readers.

    The readers of a value share its form in float32.
    """

    def write(self, form: _Wide) -> None:
        node, rw = form.node, self.rw
        self.begin()
        inputs = [self._wide(x) if x is not None and at in form.places else x for at, x in enumerate(node.inputs)]
        made = self._cast(form, inputs) if node.op == "Cast" else self._again(node, inputs)
        each: list[tuple[Value | None, Value, bool]] = list(zip(node.outputs, made, form.made, strict=True))
        narrow = [old and (rw.op("Cast", new, to=old.dtype) if half else new) for old, new, half in each]
        rw.replace(node, narrow)
        self.keep({old: new for old, (_, new, half) in zip(narrow, each, strict=True) if old and half})

    def _wide(self, value: Value) -> Value:
        return self.once(value, lambda: self._entered(value))

    def _entered(self, value: Value) -> Value:
        if value.is_const:
            given = value.array()
            array = given.astype(np.float32)
            if array.size == 1:
                array = np.full_like(array, _KNOWN.get((given.dtype, array.item()), array.item()))
            return self.rw.constant(array, like=value, graph=value.graph)
        return self.rw.op("Cast", value, to=_SINGLE)

    def _again(self, node: Node, inputs: list[Value | None]) -> Sequence[Value]:
        attrs = dict(node.attrs)
        if node.attr("output_dtype", 0) in HALF_TYPES:
            attrs["output_dtype"] = _SINGLE
        return self.rw.outputs(len(node.outputs), node.op_type, *inputs, domain=node.domain, **attrs)

    def _cast(self, form: _Wide, inputs: list[Value | None]) -> Sequence[Value]:
        """A `Cast` from or to half precision, or none if both sides are float32."""
        x = inputs[0]
        assert x is not None
        attrs = {"to": _SINGLE} if form.made[0] else form.node.attrs  # includes the rounding mode of float8
        return [x if x.dtype == attrs["to"] else self.rw.op("Cast", x, **attrs)]
