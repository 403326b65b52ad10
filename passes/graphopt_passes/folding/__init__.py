"""Passes that compute ahead what is already known."""

PASSES: dict[str, str] = {
    "inline_functions": "folding.functions:InlineFunctions",
    "fold_constants": "folding.constants:FoldConstants",
    "fold_large_constants": "folding.constants:FoldLargeConstants",
    "fold_shapes": "folding.shapes:FoldShapes",
    "fold_uniform_operands": "folding.uniform:FoldUniformOperands",
    "replace_gather_with_reshape": "folding.gather_to_reshape:ReplaceGatherWithReshape",
    "eliminate_shape_op": "folding.shape_ops:EliminateShapeOp",
    "eliminate_shape_gather": "folding.shape_ops:EliminateShapeGather",
    "eliminate_slice_after_shape": "folding.shape_ops:EliminateSliceAfterShape",
    "eliminate_nop_size": "folding.shape_ops:EliminateNopSize",
    "fold_cast_like": "folding.cast_like:FoldCastLike",
    "eliminate_if_with_const_cond": "folding.branches:EliminateIfWithConstCond",
    "eliminate_loop_with_const_trip_count": "folding.loops:EliminateLoopWithConstTripCount",
    "eliminate_scan_with_const_length": "folding.scans:EliminateScanWithConstLength",
    "extract_constant_to_initializer": "folding.initializer:ExtractConstantToInitializer",
}
