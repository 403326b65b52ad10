"""Passes that evaluate ahead of time what does not depend on the inputs."""

from graphopt_passes.naming import passes_of

PASSES = passes_of(
    "folding",
    ("functions", "InlineFunctions"),
    ("constants", "FoldConstants", "FoldLargeConstants"),
    ("shapes", "FoldShapes"),
    ("repetition", "MoveRepetitionBehindOperator"),
    ("uniform", "FoldUniformOperands"),
    ("gather_to_reshape", "ReplaceGatherWithReshape"),
    ("shape_ops", "EliminateShapeOp", "EliminateShapeGather", "EliminateSliceAfterShape", "EliminateNopSize"),
    ("cast_like", "FoldCastLike"),
    ("branches", "EliminateIfWithConstCond"),
    ("independent_rounds", "EliminateScanOfIndependentRounds"),
    ("loops", "EliminateLoopWithConstTripCount", "EliminateScanWithConstLength"),
    ("store", "ExtractConstantToInitializer"),
    ("captured", "MoveConstantsIntoBodies"),
)  # fmt: skip
