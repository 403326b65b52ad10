"""Pipelines: which passes run in which order, in a text form that can be parsed.

    repeat({elimination/*,folding/*,fusion/*}),layout/*@layout

A name selects one pass; `family/*` all default passes of a family at level basic, `family/*@extended` those at another
level, `custom/*` those of all families that third parties define; `family/NAME@extended` one pass of the family,
default or not, if the allowed numerics permit it; braces put rules into one worklist; `repeat(...)` runs its contents
until nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from graphopt.errors import UsageError
from graphopt.records import dataclass
from graphopt.rewrite import Level

_MARKS = "{}(),"

_CLEAN = "elimination/*,folding/*,fusion/*,custom/*"
_FUSED = "elimination/*@extended,folding/*@extended,fusion/*@extended,custom/*@extended"
_FASTER = f"repeat({{algorithm/*@extended}},{{{_FUSED}}},{{{_CLEAN}}})"
"""Replacements of slow kernels come last: fusions know few of the new forms, but must reach a fixpoint with them."""

_WHOLE = (
    "fusion/fuse_erf_gelu@extended,fusion/fuse_fast_gelu@extended,fusion/fuse_quick_gelu@extended,"
    "fusion/convert_quick_gelu_to_silu@extended,fusion/move_conv_before_resize@extended,fusion/fuse_prelu@layout"
)
"""Fusions of several elementwise operators into one run before the layout, whose plan would price each operator.

The fusion to `PRelu` is for the layout alone: in NCHW its kernel is slower than the operators it replaces. Moving
convolutions before a `Resize` also precedes the layout.
"""

INLINE = "inline_functions"
"""The pass that inlines functions, which runs first.

From `extended` on functions are always inlined: the runtime does so anyway when it loads a model, and patterns that it
has fused operators for span their borders.
"""

INLINED = f"{INLINE},eliminate_unused_function"
"""Functions without calls are removed at once, before passes work on them."""

_SINGLES = "layout/convert_float16_to_float32@all"
"""It runs before all passes that support float32 only."""

_OPSET = "fusion/convert_opset@extended,fusion/replace_attention@extended"
"""Passes that adapt the opset to the runtime. The first runs after fusions that find written-out normalizations, and
before those for older opsets; the expansion of `Attention` by the second is open to all passes."""

_TURNED = "fusion/fuse_transposes_around_matmul@extended"
"""Absorbs both transpositions around a product before a fused product of the runtime absorbs only the first."""

_UNSIGNED = (
    "fusion/convert_signed_operators@extended,algorithm/convert_quantized_softmax@extended,"
    "fusion/convert_int8_to_uint8@extended"
)
"""8-bit values get their final type before other rules build 8-bit operators from their surroundings."""

_FIRST = f"{_CLEAN},{_OPSET},{_TURNED},{_UNSIGNED}"

_SHUFFLE = "layout/convert_channel_shuffle_to_gather@layout"
"""Quantize operators separate the nodes of a shuffle until the fusions for quantized values ran."""

_LEFT = "layout/*@layout"
"""Weights that no integer product uses become floats after the layout passes, which then run again for their float
products: 3-d convolutions among them become 2-d before these are blocked."""

LEVELS: dict[Level, str] = {
    Level.BASIC: f"repeat({{{_CLEAN}}})",
    Level.EXTENDED: f"{INLINED},repeat({{{_FIRST}}}),repeat({{{_FUSED}}},{{{_CLEAN}}}),{_FASTER}",
    Level.ALL: (
        f"{INLINED},{_SINGLES},repeat({{{_FIRST}}},folding/*@all),repeat({{{_WHOLE}}},{{{_CLEAN}}}),"
        f"layout/*@layout,custom/*@layout,algorithm/*@all,repeat({{{_FUSED}}},{{{_CLEAN}}}),"
        f"repeat({_SHUFFLE},layout/*@all,{_LEFT},custom/*@all,repeat({{{_FUSED}}},{{{_CLEAN}}})),{_FASTER}"
    ),
}
"""The pipeline of each level; `layout` and `all` have the same."""
LEVELS[Level.LAYOUT] = LEVELS[Level.ALL]


@dataclass(frozen=True, slots=True)
class Select:
    """A pass by name; or, if the numerics permit, the default passes of a family at a level, or one of its passes."""

    text: str

    @property
    def family(self) -> tuple[str, str, Level] | None:
        """Family, name (`*` for all) and level of a glob; None for a plain name."""
        return _family(self.text)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Together:
    """Passes whose rules share one worklist; graph passes among them follow."""

    parts: tuple[Select, ...]

    def __str__(self) -> str:
        return "{" + ",".join(map(str, self.parts)) + "}"


@dataclass(frozen=True, slots=True)
class Repeat:
    """A pipeline that runs until it changes nothing."""

    body: Pipeline

    def __str__(self) -> str:
        return f"repeat({self.body})"


Stage = Select | Together | Repeat


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A sequence of stages.

    Attributes:
        stages: the stages, in order of execution.
    """

    stages: tuple[Stage, ...]

    def __str__(self) -> str:
        return ",".join(map(str, self.stages))

    def selections(self) -> Iterator[Select]:
        """Every name and glob in it."""
        for stage in self.stages:
            if isinstance(stage, Select):
                yield stage
            elif isinstance(stage, Together):
                yield from stage.parts
            else:
                yield from stage.body.selections()

    @classmethod
    def parse(cls, text: str) -> Pipeline:
        """Read a pipeline; `str` of the result is the text without blanks.

        Raises:
            UsageError: the text is malformed; the message states where.
        """
        spaced = text
        for mark in _MARKS:
            spaced = spaced.replace(mark, f" {mark} ")
        parser = _Parser(text, spaced.split())
        pipeline = parser.pipeline(None)
        for selection in pipeline.selections():
            _ = selection.family
        return pipeline

    def preceded_by(self, name: str) -> Pipeline:
        """This pipeline with a pass before it; unchanged if it already names that pass."""
        if any(selection.text == name for selection in self.selections()):
            return self
        return Pipeline((Select(name), *self.stages))

    @classmethod
    @cache
    def of_level(cls, level: Level) -> Pipeline:
        """The pipeline of a level."""
        return cls.parse(LEVELS[level])


@cache
def _family(text: str) -> tuple[str, str, Level] | None:
    glob, at, stated = text.partition("@")
    family, slash, name = glob.partition("/")
    if not slash or not _is_word(family) or not (name == "*" or _is_word(name)) or (at and not _is_word(stated)):
        return None
    level = (stated or "basic").upper()
    if level not in Level.__members__:
        raise UsageError(f"unknown level {stated!r}; expected one of {', '.join(map(str, Level))}")
    return family, name, Level[level]


def _is_word(text: str) -> bool:
    """Whether a text consists of letters, digits and underscores; a regular expression would cost start-up time."""
    return text.replace("_", "0").isalnum()


_DEEPEST = 32
"""Most repetitions within each other: each is a call of the parser, and of whoever runs them."""


class _Parser:
    def __init__(self, text: str, tokens: list[str]) -> None:
        self.text = text
        self.tokens = tokens
        self.at = 0
        self.depth = 0

    def next(self) -> str | None:
        if self.at >= len(self.tokens):
            return None
        self.at += 1
        return self.tokens[self.at - 1]

    def fail(self, expected: str, found: str | None) -> UsageError:
        place = f"{found!r} (token {self.at})" if found is not None else "its end"
        return UsageError(f"pipeline {self.text!r}: expected {expected}, found {place}")

    def pipeline(self, closing: str | None) -> Pipeline:
        stages: list[Stage] = []
        while True:
            stages.append(self.stage())
            token = self.next()
            if token == closing:
                return Pipeline(tuple(stages))
            if token != ",":
                raise self.fail("',' or the end" if closing is None else f"',' or {closing!r}", token)

    def stage(self) -> Stage:
        token = self.next()
        if token == "{":
            return self.group()
        if token == "repeat" and self.at < len(self.tokens) and self.tokens[self.at] == "(":
            self.at, self.depth = self.at + 1, self.depth + 1
            if self.depth > _DEEPEST:
                raise UsageError(f"pipeline: expected at most {_DEEPEST} times repeat( within each other, found more")
            body = self.pipeline(")")
            self.depth -= 1
            return Repeat(body)
        if token is None or token in _MARKS:
            raise self.fail("a pass name, '{' or 'repeat('", token)
        return Select(token)

    def group(self) -> Together:
        parts: list[Select] = []
        while True:
            token = self.next()
            if token is None or token in _MARKS:
                raise self.fail("a pass name", token)
            parts.append(Select(token))
            token = self.next()
            if token == "}":
                return Together(tuple(parts))
            if token != ",":
                raise self.fail("',' or '}'", token)
