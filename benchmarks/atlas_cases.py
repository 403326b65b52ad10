"""The cases of the atlas: operators as exporters write them, over shapes, axes, element types and opsets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
import onnx
from onnx import numpy_helper, parser

_LONG = 40
"""Longer constants are not shown."""


@dataclass(frozen=True)
class Case:
    """One operator, or a few that belong together, on operands of given shapes.

    Attributes:
        operator: its name in the table.
        inputs: element type and shape of each input, `x` first, then `u`, `v`, in text form.
        body: the operators, from `x` to `y`.
        constants: constants of the text form, and random ones as `name = type[shape]`.
        opset: the opset.
    """

    operator: str
    inputs: tuple[str, ...]
    body: str
    constants: tuple[str, ...] = ()
    opset: int = 17

    def __str__(self) -> str:
        constants = "".join(f", {text}" for text in self.constants if len(text) < _LONG)
        return f"{' '.join(self.inputs)}: {self.body}{constants}, opset {self.opset}"

    @cached_property
    def model(self) -> onnx.ModelProto:
        """The model, with the inferred type of its output."""
        operands = ", ".join(f"{kind} {name}" for kind, name in zip(self.inputs, "xuv", strict=False))
        stated = [text for text in self.constants if "{" in text]
        given = f"<{', '.join(stated)}>" if stated else ""
        domains = f'"" : {self.opset}, "com.microsoft" : 1'
        model = parser.parse_model(
            f"<ir_version: 9, opset_import: [{domains}]> g ({operands}) => (float y) {given} {{ {self.body} }}"
        )
        random = np.random.default_rng(0)
        for text in self.constants:
            if "{" not in text:
                name, shape = text.split(" = ")
                array = random.standard_normal([int(dim) for dim in shape.split(",") if dim]).astype(np.float32)
                model.graph.initializer.append(numpy_helper.from_array(array, name))
        model.graph.output[0].ClearField("type")
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
        model.graph.output[0].CopyFrom(inferred.graph.output[0])
        return model

    def feed(self) -> dict[str, np.ndarray]:
        """Random inputs; small numbers for integers, which may be positions."""
        random, made = np.random.default_rng(1), {}
        for info in self.model.graph.input:
            dims = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
            dtype = onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
            floating = np.issubdtype(dtype, np.floating)
            array = random.standard_normal(dims) if floating else random.integers(0, 2, dims)
            made[info.name] = np.asarray(array).astype(dtype)
        return made

    def multiplications(self) -> int:
        """Multiply-adds of convolutions and products; 0 of other operators."""
        known = {tensor.name: tuple(tensor.dims) for tensor in self.model.graph.initializer}
        for info in self.model.graph.input:
            known[info.name] = tuple(dim.dim_value for dim in info.type.tensor_type.shape.dim)
        node = self.model.graph.node[-1]
        result = prod(dim.dim_value for dim in self.model.graph.output[0].type.tensor_type.shape.dim)
        if node.op_type == "Conv":
            return result * prod(known[node.input[1]][1:])
        if node.op_type == "ConvTranspose":
            return prod(known[node.input[0]]) * prod(known[node.input[1]][1:])
        if node.op_type in ("MatMul", "Gemm", "FusedMatMul") and node.input[0] in known:
            return result * known[node.input[0]][-1]
        return 0


UNARY = (
    "Abs", "Atan", "Ceil", "Celu", "Cos", "Elu", "Erf", "Exp", "Floor", "HardSigmoid", "HardSwish", "LeakyRelu",
    "Log", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Softplus",
    "Softsign", "Sqrt", "Tan", "Tanh", "ThresholdedRelu",
)  # fmt: skip
CONTRIB = ("FastGelu", "Gelu", "QuickGelu")
IMAGES = ("1,64,56,56", "1,16,14,14", "4,64,28,28")
REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")


def cases() -> Iterator[Case]:
    """Every case."""
    for part in (_elementwise, _along_axes, _movement, _selection, _images, _products):
        yield from part()


def _elementwise() -> Iterator[Case]:
    for dims in IMAGES[:2]:
        for op in UNARY:
            yield Case(op, (f"float[{dims}]",), f"y = {op} (x)", opset=18)
        for op in CONTRIB:
            yield Case(op, (f"float[{dims}]",), f"y = com.microsoft.{op} (x)")
        for power in (-2, -1, -0.5, 0.5, 1.5, 2, 3, 4):
            yield Case("Pow", (f"float[{dims}]",), "a = Abs (x) y = Pow (a, e)", (f"float e = {{{power}}}",))
        yield Case("Mish", (f"float[{dims}]",), "a = Softplus (x) b = Tanh (a) y = Mul (x, b)")
        swish = "a = Add (x, t) b = Clip (a, z, s) c = Mul (x, b) y = Div (c, s)"
        yield Case("HardSwish", (f"float[{dims}]",), swish, ("float t = {3}", "float z = {0}", "float s = {6}"))
        yield Case("Mod", (f"float[{dims}]",), "y = Mod <fmod = 1> (x, e)", ("float e = {2.5}",))
        for op in ("Add", "Mul", "Div", "Max", "Greater"):
            yield Case(op, (f"float[{dims}]", f"float[{dims}]"), f"y = {op} (x, u)")
        channels = dims.split(",")[1]
        for op in ("Add", "PRelu"):
            yield Case(op, (f"float[{dims}]",), f"y = {op} (x, w)", (f"w = {channels},1,1",))
        yield Case(
            "Mul and Add",
            (f"float[{dims}]",),
            "a = Mul (x, w) y = Add (a, b)",
            (f"w = {channels},1,1", f"b = {channels},1,1"),
        )
        yield Case("Where", (f"float[{dims}]", f"bool[{dims}]"), "y = Where (u, x, e)", ("float e = {0}",))
        yield Case("Clip", (f"float[{dims}]",), "y = Clip (x, a, b)", ("float a = {0}", "float b = {6}"))
        for kind in (6, 7, 9, 10, 11):
            yield Case("Cast", (f"float[{dims}]",), f"y = Cast <to = {kind}> (x)")
    for kind in ("double", "int32", "int64"):
        for op in ("Add", "Mul", "Neg", "Abs"):
            inputs = (f"{kind}[{IMAGES[0]}]",)
            yield Case(op, inputs, f"y = {op} (x)" if op in ("Neg", "Abs") else f"y = {op} (x, x)")


def _along_axes() -> Iterator[Case]:
    for kind in REDUCTIONS:
        for dims, axes in (
            ("1,64,56,56", "1"),
            ("4,64,28,28", "1"),
            ("1,64,56,56", "2, 3"),
            ("1,197,768", "1"),
            ("1,128,768", "2"),
            ("1,56,56,64", "1, 2"),
            ("128,768", "0"),
            ("1,16,8,8", "1"),
            ("1,256,14,14", "1"),
        ):
            given = f"int64[{axes.count(',') + 1}] a = {{{axes}}}"
            positive = kind == "LogSum"
            body = f"p = Abs (x) y = Reduce{kind} (p, a)" if positive else f"y = Reduce{kind} (x, a)"
            yield Case(f"Reduce{kind}", (f"float[{dims}]",), body, (given,), opset=18)
    for op in ("Softmax", "LogSoftmax"):
        for dims, axis in (
            ("1,19,128,128", 1),
            ("1,2,64,64", 1),
            ("1,64,28,28", 1),
            ("4,19,32,32", 1),
            ("1,16,4,8400", 1),
            ("1,4,8,8", 1),
            ("1,12,128,128", -1),
            ("1,64,3136", 1),
            ("1,8400,2", -1),
            ("1,1000", -1),
            ("1,12,49,49", -1),
        ):
            yield Case(op, (f"float[{dims}]",), f"y = {op} <axis = {axis}> (x)")
    for dims, axis in (("1,80,300", 2), ("1,300,80", 1), ("1,12,128,128", 3), ("1,64,64,64", 3), ("1,128", 1)):
        yield Case("CumSum", (f"float[{dims}]",), "y = CumSum (x, a)", (f"int64 a = {{{axis}}}",))
    for dims, axis in (("1,19,128,128", 1), ("1,2,128,128", 1), ("1,128,50", 2), ("1,128,1000", 2), ("1,16,30522", 2)):
        yield Case("ArgMax", (f"float[{dims}]",), f"y = ArgMax <axis = {axis}, keepdims = 0> (x)")
    for dims, many in (("1,8400", 300), ("8,1000", 5), ("1,50257", 50)):
        yield Case("TopK", (f"float[{dims}]",), "y, i = TopK (x, k)", (f"int64[1] k = {{{many}}}",))
    for dims in ("1,128,768", "1,3136,96", "1,8,64"):
        width = dims.split(",")[-1]
        yield Case(
            "LayerNormalization",
            (f"float[{dims}]",),
            "y = LayerNormalization (x, w, b)",
            (f"w = {width}", f"b = {width}"),
        )
    written = (
        "m = ReduceMean <axes = [1]> (x) d = Sub (x, m) q = Mul (d, d) v = ReduceMean <axes = [1]> (q) e = Add (v, p) "
        "s = Sqrt (e) y = Div (d, s)"
    )
    for dims in ("1,96,56,56", "1,384,14,14", "1,768,7,7", "2,192,28,28"):
        yield Case("LayerNormalization of channels", (f"float[{dims}]",), written, ("float p = {0.00001}",))
    for dims in ("1,128,32,32", "1,512,16,16", "1,32,8,8"):
        numbers = ", ".join(["1"] * int(dims.split(",")[1]))
        constants = tuple(f"float[{numbers.count('1')}] {name} = {{{numbers}}}" for name in "wb")
        body = "y = GroupNormalization <num_groups = 32> (x, w, b)"
        yield Case("GroupNormalization", (f"float[{dims}]",), body, constants, opset=21)
    for dims in ("1,64,56,56", "1,256,28,28", "2,64,56,56"):
        channels = dims.split(",")[1]
        yield Case(
            "InstanceNormalization",
            (f"float[{dims}]",),
            "y = InstanceNormalization (x, w, b)",
            (f"w = {channels}", f"b = {channels}"),
        )


def _movement() -> Iterator[Case]:
    for dims, perm in (
        ("1,64,56,56", "0, 2, 3, 1"),
        ("1,56,56,64", "0, 3, 1, 2"),
        ("1,64,56,56", "0, 3, 2, 1"),
        ("1,128,12,64", "0, 2, 1, 3"),
        ("1,128,12,64", "0, 2, 3, 1"),
        ("32,64,64", "2, 1, 0"),
        ("1,8,7,8,7,96", "0, 1, 3, 2, 4, 5"),
        ("1,16,2,2,28,28", "0, 1, 4, 2, 5, 3"),
    ):
        yield Case("Transpose", (f"float[{dims}]",), f"y = Transpose <perm = [{perm}]> (x)")
    for dims, block in (("1,64,56,56", 2), ("4,64,28,28", 2), ("1,36,24,24", 3), ("1,48,64,64", 4)):
        for mode in ("DCR", "CRD"):
            yield Case(
                "DepthToSpace", (f"float[{dims}]",), f'y = DepthToSpace <blocksize = {block}, mode = "{mode}"> (x)'
            )
    yield Case("SpaceToDepth", ("float[1,16,112,112]",), "y = SpaceToDepth <blocksize = 2> (x)")
    for dims, to in (
        ("1,64,1,1", "1, 64, 56, 56"),
        ("1,64,56,1", "1, 64, 56, 56"),
        ("1,8,1,512,64", "1, 8, 4, 512, 64"),
    ):
        count = to.count(",") + 1
        yield Case("Expand", (f"float[{dims}]",), "y = Expand (x, s)", (f"int64[{count}] s = {{{to}}}",))
    for mode in ("constant", "reflect", "edge"):
        yield Case(
            "Pad",
            ("float[1,64,56,56]",),
            f'y = Pad <mode = "{mode}"> (x, p)',
            ("int64[8] p = {0, 0, 1, 1, 0, 0, 1, 1}",),
        )
    for axis in (1, 3):
        yield Case("Concat", ("float[1,64,56,56]", "float[1,64,56,56]"), f"y = Concat <axis = {axis}> (x, u)")
        yield Case("Split", ("float[1,64,56,56]",), f"y, z = Split <axis = {axis}> (x)")
        for step in (1, 2):
            yield Case(
                "Slice",
                ("float[1,64,56,56]",),
                "y = Slice (x, s, e, a, t)",
                ("int64[1] s = {0}", "int64[1] e = {28}", f"int64[1] a = {{{axis}}}", f"int64[1] t = {{{step}}}"),
            )


def _selection() -> Iterator[Case]:
    for dims, axis in (("1,64,56,56", 3), ("1,64,56,56", 1), ("64,49,96", 2), ("1,128,768", 2), ("1,2,4,56", 3)):
        size = int(dims.split(",")[axis])
        taken = [at * 5 % size for at in range(size // 2)]
        yield Case(
            "Gather",
            (f"float[{dims}]",),
            f"y = Gather <axis = {axis}> (x, i)",
            (f"int64[{len(taken)}] i = {{{', '.join(map(str, taken))}}}",),
        )
    for many, taken, width in ((900, 300, 256), (8400, 300, 4), (8400, 300, 84)):
        yield Case(
            "GatherElements",
            (f"float[1,{many},{width}]", f"int64[1,{taken},1]"),
            "j = Expand (u, s) y = GatherElements <axis = 1> (x, j)",
            (f"int64[3] s = {{1, {taken}, {width}}}",),
        )
        yield Case(
            "GatherElements",
            (f"float[4,{many},{width}]", f"int64[4,{taken},1]"),
            "j = Expand (u, s) y = GatherElements <axis = 1> (x, j)",
            (f"int64[3] s = {{4, {taken}, {width}}}",),
        )
    yield Case("GatherElements", ("float[1,128,768]", "int64[1,128,768]"), "y = GatherElements <axis = 1> (x, u)")


def _images() -> Iterator[Case]:
    for opset in (18, 22):
        for dims, settings in (
            ("1,64,56,56", "kernel_shape = [3, 3]"),
            ("1,64,56,56", "kernel_shape = [2, 2], strides = [2, 2]"),
            ("1,64,56,56", "kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]"),
            ("1,256,14,14", "kernel_shape = [3, 3]"),
            ("1,16,7,7", "kernel_shape = [3, 3]"),
        ):
            yield Case("AveragePool", (f"float[{dims}]",), f"y = AveragePool <{settings}> (x)", opset=opset)
            yield Case("MaxPool", (f"float[{dims}]",), f"y = MaxPool <{settings}> (x)", opset=opset)
    for dims in ("1,64,56,56", "1,512,7,7", "1,24,56,56", "4,64,28,28"):
        yield Case("GlobalAveragePool", (f"float[{dims}]",), "y = GlobalAveragePool (x)")
        yield Case("GlobalMaxPool", (f"float[{dims}]",), "y = GlobalMaxPool (x)")
    for dims, scale in (
        ("1,64,28,28", 2),
        ("1,256,14,14", 2),
        ("1,3,112,112", 2),
        ("1,19,32,32", 4),
        ("1,64,56,56", 0.5),
        ("1,16,8,8", 2),
        ("2,32,16,16", 2),
    ):
        for mode in ("nearest", "linear", "cubic"):
            for antialias in (0, 1) if mode != "nearest" else (0,):
                yield Case(
                    "Resize",
                    (f"float[{dims}]",),
                    f'y = Resize <mode = "{mode}", antialias = {antialias}> (x, , s)',
                    (f"float[4] s = {{1, 1, {scale}, {scale}}}",),
                    opset=18,
                )


def _products() -> Iterator[Case]:
    for rows, length in ((784, 64), (8400, 16), (128, 768), (100, 256), (16, 64), (1, 768)):
        for columns in ("", ",1", ",4", ",64"):
            yield Case("MatMul", (f"float[1,{rows},{length}]",), "y = MatMul (x, w)", (f"w = {length}{columns}",))
    for rows, length in ((1, 128), (1, 1024), (16, 256), (128, 128)):
        repeated = "a = Unsqueeze (u, i) b = Expand (a, e) c = Reshape (b, f) y = MatMul (x, c)"
        constants = ("int64[1] i = {2}", "int64[5] e = {1, 1, 4, 1, 1}", f"int64[4] f = {{1, 32, {length}, 64}}")
        inputs = (f"float[1,32,{rows},{length}]", f"float[1,8,{length},64]")
        yield Case("MatMul of repeated heads", inputs, repeated, constants)
    for heads, length, width in ((12, 128, 64), (8, 1, 512)):
        yield Case(
            "MatMul", (f"float[1,{heads},{length},{width}]", f"float[1,{heads},{width},{length}]"), "y = MatMul (x, u)"
        )
    for dims, weights, settings in (
        ("1,64,56,56", "64,64,3,3", "pads = [1, 1, 1, 1]"),
        ("1,64,56,56", "64,1,3,3", "pads = [1, 1, 1, 1], group = 64"),
        ("1,64,56,56", "64,64,3,3", "pads = [2, 2, 2, 2], dilations = [2, 2]"),
        ("1,3,224,224", "64,3,7,7", "strides = [2, 2], pads = [3, 3, 3, 3]"),
        ("1,256,100", "256,1,31", "pads = [15, 15], group = 256"),
        ("1,256,200", "256,256,3", "pads = [1, 1]"),
        ("1,16,16,32,32", "16,16,3,3,3", "pads = [1, 1, 1, 1, 1, 1]"),
        ("1,32,16,16,16", "32,1,3,3,3", "pads = [1, 1, 1, 1, 1, 1], group = 32"),
    ):
        yield Case("Conv", (f"float[{dims}]",), f"y = Conv <{settings}> (x, w)", (f"w = {weights}",))
    for dims, weights, settings in (
        ("1,64,28,28", "64,64,2,2", "strides = [2, 2]"),
        ("1,64,28,28", "64,64,4,4", "strides = [2, 2], pads = [1, 1, 1, 1]"),
        ("1,64,28,28", "64,1,4,4", "strides = [2, 2], pads = [1, 1, 1, 1], group = 64"),
        ("1,128,512", "128,64,4", "strides = [2], pads = [1, 1]"),
    ):
        yield Case("ConvTranspose", (f"float[{dims}]",), f"y = ConvTranspose <{settings}> (x, w)", (f"w = {weights}",))
    for equation, one, two in (
        ("bhwc,hkc->bhwk", "1,14,14,64", "14,14,64"),
        ("btd,ndh->btnh", "1,128,768", "12,768,64"),
        ("bhqd,bhkd->bhqk", "1,12,128,64", "1,12,128,64"),
    ):
        yield Case("Einsum", (f"float[{one}]", f"float[{two}]"), f'y = Einsum <equation = "{equation}"> (x, u)')
