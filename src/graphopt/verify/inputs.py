"""Feeds for a model: sizes for its symbolic dimensions, then values for each input."""

from __future__ import annotations

import ast
import itertools
import math
import operator
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from graphopt.errors import UsageError
from graphopt.ir.interface import whole_size
from graphopt.verify import roles, values
from graphopt.verify.inference import Shapes, infer, shapes_of
from graphopt.verify.interface import Spec, interface_of
from graphopt.verify.source import has_values
from graphopt.verify.telling import Told, told
from graphopt.verify.values import Array, Flavour

Feed = dict[str, Any]
"""Input name -> array, list of arrays (a sequence) or None (an empty optional)."""

SETS = ("ordinary", "extreme", "special", "overrides")
FINITE_SETS = ("ordinary", "extreme", "overrides")
"""The input sets without NaN and infinities."""
AGAIN = "again"
POLICIES = ("derived", AGAIN, "bits", "ones", "zeros")
"""Policies for integer inputs: values that their uses suggest, drawn twice; then safer and safer values."""
FLAGS = "flags"
"""As their uses suggest, and 0 and 1 for inputs without such uses, which may be masks in arithmetic.
Floats are positive: some may be operands of a square root or a logarithm."""
BOLD = "bold"
"""As their uses suggest, but not always the safest values: start at 1, and count 2."""

_FLAVOURS: dict[str, tuple[Flavour, ...]] = {
    "ordinary": ("ordinary",),
    "extreme": ("extreme",),
    "special": ("infinite", "nan"),
    "overrides": ("ordinary",),
}
_TURNS: dict[Flavour, int] = {"ordinary": 0, "infinite": 1, "nan": 2, "extreme": 3}
"""Which boolean inputs are flipped, so that two of them occur in all four combinations."""
_FEW_FLAGS = 8
_MAX_ELEMENTS = 1 << 26
_UNKNOWN_RANK_SHAPES: tuple[tuple[int, ...], ...] = ((2, 3), (2, 3, 4, 5), (3,), (2, 3, 4), ())
_EQUAL_SIZES = (4, 16, 32, 64, 128, 224, 12, 256)
_ROWS = 2
"""Up to this rank a batch costs little, and is large once, so that it has more than the first few rows."""
_USUAL = 2
"""The usual number of elements of a sequence."""
_LENGTHS = (_USUAL, 3, 1)
"""Lengths of sequences: with a single length, positions counted from either end could not be told apart."""
_NO_NEUTRAL = 0.75
"""Replaces a single 0 or 1, neutral elements that could hide errors of sums and products."""


class CannotGenerateError(Exception):
    """An input of the model cannot be generated; the message states which and why."""


@dataclass(frozen=True, slots=True)
class InputPlan:
    """Sizes and policies for one feed.

    Attributes:
        sizes: sizes of the dimensions that are not fixed.
        policy: the policy for integer inputs.
        unknown_rank: the shape of inputs whose rank is unknown.
        held: number of elements of sequences; 0 if optionals are empty.
        draw: a number that varies the random values and the flipped flags.
    """

    sizes: dict[str, int]
    policy: str = "derived"
    unknown_rank: tuple[int, ...] = _UNKNOWN_RANK_SHAPES[0]
    held: int = _USUAL
    draw: int = 0


@dataclass(slots=True)
class Generator:
    """Makes feeds for one model.

    Attributes:
        model: The model, at least its skeleton.
        seed: The same seed gives the same feeds.
        fixed: The caller's sizes for named dimensions (or `input[axis]` for unnamed ones).
        infinite: Whether the special set has a feed with infinities.
    """

    model: onnx.ModelProto
    seed: int = 0
    fixed: Mapping[str, int] = field(default_factory=dict)
    infinite: bool = True
    specs: tuple[Spec, ...] = field(init=False)
    overridable: tuple[Spec, ...] = field(init=False)
    _roles: dict[str, tuple[roles.Use, ...]] = field(init=False)
    _constants: dict[str, Array] = field(init=False)
    _told: Told = field(init=False)
    _may_count: bool = field(init=False)
    _inferred: Shapes | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.fixed = {name: whole_size(size, f"dimension {name!r}") for name, size in self.fixed.items()}
        interface = interface_of(self.model)
        self.specs, self.overridable = interface.inputs, interface.overridable
        for spec in self.specs:
            _check(spec)
        self._constants = roles.small_constants(self.model)
        self._roles = roles.roles_of(self.model, self._constants)
        self._told = told(self.model)
        self._may_count = roles.may_count(self.model)

    def check_names(self, dims: Iterable[str]) -> None:
        """Check that the symbolic dimensions to which the caller gives sizes exist.

        Raises:
            UsageError: one of them does not.
        """
        free = self._free_dims()
        for name in dims:
            if name not in free:
                raise UsageError(f"no symbolic dimension {name!r}; the inputs have {', '.join(sorted(free)) or 'none'}")

    def sets(self) -> tuple[str, ...]:
        """The input sets that apply to this model's types."""
        dtypes = [values.numpy_dtype(_innermost(s).dtype) for s in self.specs]
        special = any(d is not None and values.has_special(d) for d in dtypes)
        names = ["ordinary"]
        if any(d is not None and d.kind not in "OSU" for d in dtypes):
            names.append("extreme")
        if special:
            names.append("special")
        if self._varied():
            names.append("overrides")
        return tuple(names)

    def plans(self) -> Iterator[InputPlan]:
        """Sizes and policies to try, the most informative first."""
        ranks = _UNKNOWN_RANK_SHAPES if any(_rankless(s) for s in self.specs) else _UNKNOWN_RANK_SHAPES[:1]
        sizes, held = list(self.size_plans()), self._held()
        often = max(len(sizes), len(held))
        for number, (rank, at) in enumerate(_each_with_each(len(ranks), often)):
            yield InputPlan(sizes[at % len(sizes)], POLICIES[0], ranks[rank], held[number % len(held)], number)
        for policy, rank, plan in itertools.product(POLICIES[1:], ranks, sizes[:4]):
            yield InputPlan(plan, policy, rank)

    def _held(self) -> tuple[int, ...]:
        """The number of elements of sequences and optionals, for each plan in turn."""
        kinds = {spec.kind for spec in self.specs} | {spec.element.kind for spec in self.specs if spec.element}
        if "optional" in kinds:
            return (_USUAL, 0, *_LENGTHS[1:])
        return _LENGTHS if "sequence" in kinds else (_USUAL,)

    def size_plans(self) -> Iterator[dict[str, int]]:
        """Distinct sizes for the dimensions that are not fixed; in one plan all of them are 1."""
        dims = self._free_dims()
        plans: list[dict[str, int]] = []
        for images, rows, space, other in ((2, 2, 32, 5), (1, 1, 1, 1), (3, 9, 64, 8)):
            plans.append(_typical(dims, images, rows, space, other))
        plans.append({name: 2 + axis for name, (axis, _) in dims.items()})
        plans.append({name: 2 if axis == 0 else 32 for name, (axis, _) in dims.items()})
        plans.extend(dict.fromkeys(dims, size) for size in _EQUAL_SIZES)
        plans.extend({n: 1 if axis == 0 else size for n, (axis, _) in dims.items()} for size in _EQUAL_SIZES)
        seen: list[dict[str, int]] = []
        for plan in plans:
            sized = self._with_expressions({**plan, **{k: v for k, v in self.fixed.items() if k in dims}})
            if sized not in seen and self._elements(sized) <= _MAX_ELEMENTS:
                seen.append(sized)
                yield sized
        if not seen:
            raise CannotGenerateError(f"the inputs have more than {_MAX_ELEMENTS:,} elements at every size to try")

    def feeds(self, set_name: str, plan: InputPlan, *, vary_integers: bool = True) -> Iterator[Feed]:
        """The feeds of one input set; the special set has two, one with infinities and one with NaN."""
        flavours = [(flavour, _TURNS[flavour]) for flavour in _FLAVOURS[set_name]]
        if set_name == "extreme" and len(self._flags()) > 1 and "special" not in self.sets():
            flavours += [("extreme", 1), ("extreme", 2)]
        for number, (flavour, turn) in enumerate(flavours):
            if flavour == "infinite" and not self.infinite:
                continue
            other = 1 if plan.policy == AGAIN else plan.draw and plan.draw + 1
            rng = np.random.default_rng([self.seed, SETS.index(set_name), number] + [other] * (other > 0))
            feed = {spec.name: self._value(rng, spec, spec.name, plan, flavour) for spec in self.specs}
            feed.update(self._turned(plan, turn + plan.draw))
            if flavour in ("ordinary", "extreme") and plan.policy != FLAGS:
                feed.update(self._signed(feed, turn + plan.draw))
            if set_name == "overrides":
                for name, default in self._varied().items():
                    feed[name] = values.vary(rng, default, integers=vary_integers)
            yield feed

    def _flags(self) -> tuple[Spec, ...]:
        return tuple(s for s in self.specs if s.kind == "tensor" and s.dtype == onnx.TensorProto.BOOL)

    def _turned(self, plan: InputPlan, turn: int) -> Feed:
        """Boolean inputs with so few elements that random values might never include one of both values."""
        found: Feed = {}
        for number, spec in enumerate(self._flags()):
            shape = self._shape(spec, spec.name, plan)
            if math.prod(shape) <= _FEW_FLAGS:
                rng = np.random.default_rng([self.seed, number])
                found[spec.name] = np.asarray(rng.integers(0, 2, shape) ^ _is_turned(turn, number)).astype(np.bool_)
        return found

    def _signed(self, feed: Feed, turn: int) -> Feed:
        """Single floats, whose random values might never be positive, or never negative."""
        found: Feed = {}
        for number, spec in enumerate(self.specs):
            held = feed[spec.name]
            free = spec.kind == "tensor" and spec.name not in self._roles
            if free and held.size == 1 and values.is_float(held.dtype):
                size = abs(held.astype(np.float64).item())
                size = _NO_NEUTRAL if size in (0, 1) else size
                found[spec.name] = np.full(held.shape, -size if _is_turned(turn, number) else size).astype(held.dtype)
        return found

    def _value(self, rng: np.random.Generator, spec: Spec, name: str, plan: InputPlan, flavour: Flavour) -> Any:
        if spec.kind == "optional" and spec.element is not None:
            return self._value(rng, spec.element, name, plan, flavour) if plan.held else None
        if spec.kind == "sequence" and spec.element is not None:
            return [self._value(rng, spec.element, name, plan, flavour) for _ in range(plan.held or _USUAL)]
        dtype = values.numpy_dtype(spec.dtype)
        if dtype is None:  # _check has refused it
            raise CannotGenerateError(f"input {name!r}: {spec}")
        shape = self._shape(spec, name, plan)
        uses = self._roles.get(name, ())
        scene = roles.Surroundings(lambda v: self._shape_of(v, plan), self._constants, plan.policy == BOLD)
        suited = roles.limited(rng, uses, dtype, shape, scene)
        harmless = plan.policy in POLICIES[2:]
        if dtype.kind in "iu" and (harmless or (plan.policy == FLAGS and suited is None)):
            return _harmless(rng, plan.policy, dtype, shape)
        if dtype.kind in "OSU" and harmless:
            return values.numerals(rng, shape)
        if suited is not None:
            indices = {use.role for use in uses} == {"index"} and suited.size
            return self._told.among(rng, suited, 0, int(suited.max())) if indices else suited
        drawn = values.draw(rng, dtype, shape, flavour)
        if flavour in ("ordinary", "extreme"):  # the other sets have a few special values that must not be replaced
            drawn = self._told.among(rng, drawn)
        if flavour == "extreme" and not self._may_count:
            drawn = values.beyond(rng.spawn(1)[0], drawn)
        return np.abs(drawn) if plan.policy == FLAGS and values.is_float(dtype) else drawn

    def _shape(self, spec: Spec, name: str, plan: InputPlan) -> tuple[int, ...]:
        if spec.shape is None:
            return plan.unknown_rank
        return tuple(
            dim if isinstance(dim, int) else plan.sizes[_key(dim, name, axis)] for axis, dim in enumerate(spec.shape)
        )

    def _shape_of(self, name: str, plan: InputPlan) -> tuple[int | None, ...] | None:
        """The shape of any value under a plan, as far as inference knows it."""
        for spec in self.specs:
            if spec.name == name:
                return self._shape(spec, name, plan)
        if self._inferred is None:
            self._inferred = shapes_of(infer(self.model))
        dims = self._inferred.get(name)
        if dims is None:
            return None
        return tuple(d if isinstance(d, int) else plan.sizes.get(d) if d is not None else None for d in dims)

    def _free_dims(self) -> dict[str, tuple[int, int]]:
        """For each free dimension, the axis where it first occurs, and the largest rank of inputs with it there."""
        found: dict[str, tuple[int, int]] = {}
        for spec in self.specs:
            shape = _innermost(spec).shape or ()
            for axis, dim in enumerate(shape):
                if not isinstance(dim, int):
                    key = _key(dim, spec.name, axis)
                    first, rank = found.get(key, (axis, 0))
                    found[key] = first, max(rank, len(shape)) if axis == first else rank
        return found

    def _with_expressions(self, sizes: dict[str, int]) -> dict[str, int]:
        """Evaluate dimensions such as `past + 1` if their parts are dimensions of the model, too."""
        for name in sizes:
            if name not in self.fixed and not name.isidentifier():
                value = _evaluate(name, sizes)
                if value is not None and value > 0:
                    sizes[name] = value
        return sizes

    def _elements(self, sizes: dict[str, int]) -> int:
        total = 0
        for spec in self.specs:
            count = 1
            for axis, dim in enumerate(_innermost(spec).shape or ()):
                count *= dim if isinstance(dim, int) else sizes[_key(dim, spec.name, axis)]
            total += count
        return total

    def _varied(self) -> dict[str, Array]:
        """The overridable initializers whose contents are available, by name."""
        names = {s.name for s in self.overridable}
        return {
            t.name: onnx.numpy_helper.to_array(t)
            for t in self.model.graph.initializer
            if t.name in names and has_values(t)
        }


def _is_turned(turn: int, number: int) -> bool:
    """Whether an input has its other value: two adjacent inputs have all four combinations in four turns."""
    return bool(turn >> number % 2 & 1)


def _each_with_each(ranks: int, sizes: int) -> Iterable[tuple[int, int]]:
    """All pairs of two indices, those first that vary both; most models accept inputs of the first rank only."""
    one, other = ([(at % most, at) for at in range(sizes)] for most in (ranks, 1))
    both = itertools.chain.from_iterable(zip(one, other, strict=True))
    return dict.fromkeys(itertools.chain(both, itertools.product(range(ranks), range(sizes))))


def _check(spec: Spec) -> None:
    inner = _innermost(spec)
    if inner.kind != "tensor":
        raise CannotGenerateError(f"cannot generate input {spec.name!r}: a value of kind {spec} has no generator")
    if values.numpy_dtype(inner.dtype) is None:
        raise CannotGenerateError(f"cannot generate input {spec.name!r}: its element type is unknown")


def _innermost(spec: Spec) -> Spec:
    while spec.element is not None:
        spec = spec.element
    return spec


def _rankless(spec: Spec) -> bool:
    return _innermost(spec).shape is None


def _key(dim: str | None, name: str, axis: int) -> str:
    return dim if dim is not None else f"{name}[{axis}]"


def _typical(dims: Mapping[str, tuple[int, int]], images: int, rows: int, space: int, other: int) -> dict[str, int]:
    """Different sizes for different dimensions, so that swapped ones show; a base of 1 gives 1 for all."""
    sizes: dict[str, int] = {}
    seen = {"batch": 0, "space": 0, "other": 0}
    for name, (axis, rank) in dims.items():
        kind = "batch" if axis == 0 else "space" if rank >= 4 and axis >= 2 else "other"
        batch = rows if rank <= _ROWS else images
        base, step = {"batch": (batch, 1), "space": (space, space), "other": (other, 1)}[kind]
        sizes[name] = base if base == 1 else base + step * seen[kind]
        seen[kind] += 1
    return sizes


def _harmless(rng: np.random.Generator, policy: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    if policy in ("bits", FLAGS):
        return np.asarray(np.asarray(rng.integers(0, 2, shape)).astype(dtype))
    return np.full(shape, 1 if policy == "ones" else 0, dtype=dtype)


_OPERATORS: dict[type[ast.operator], Any] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.floordiv,
}  # fmt: skip


def _evaluate(expression: str, sizes: Mapping[str, int]) -> int | None:
    try:
        return _value_of(ast.parse(expression, mode="eval").body, sizes)
    except (SyntaxError, ValueError, KeyError, ZeroDivisionError, RecursionError):
        return None


def _value_of(tree: ast.expr, sizes: Mapping[str, int]) -> int:
    if isinstance(tree, ast.Constant) and isinstance(tree.value, int):
        return tree.value
    if isinstance(tree, ast.Name):
        return sizes[tree.id]
    if isinstance(tree, ast.BinOp) and type(tree.op) in _OPERATORS:
        result: int = _OPERATORS[type(tree.op)](_value_of(tree.left, sizes), _value_of(tree.right, sizes))
        return result
    raise ValueError(type(tree).__name__)
