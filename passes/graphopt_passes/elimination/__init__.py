"""Passes that remove what does nothing."""

PASSES: dict[str, str] = {
    "eliminate_identity": "elimination.identity:EliminateIdentity",
    "eliminate_nop_dropout": "elimination.dropout:EliminateNopDropout",
    "eliminate_nop_cast": "elimination.cast:EliminateNopCast",
    "eliminate_nop_transpose": "elimination.transpose:EliminateNopTranspose",
    "eliminate_nop_reshape": "elimination.reshape:EliminateNopReshape",
    "eliminate_nop_flatten": "elimination.flatten:EliminateNopFlatten",
    "eliminate_consecutive_idempotent_ops": "elimination.idempotent:EliminateConsecutiveIdempotentOps",
    "eliminate_nop_monotone_argmax": "elimination.argmax:EliminateNopMonotoneArgmax",
    "eliminate_nop_pad": "elimination.pad:EliminateNopPad",
    "eliminate_nop_concat": "elimination.concat:EliminateNopConcat",
    "eliminate_empty_concat_inputs": "elimination.concat:EliminateEmptyConcatInputs",
    "eliminate_nop_split": "elimination.concat:EliminateNopSplit",
    "eliminate_nop_expand": "elimination.repeat:EliminateNopExpand",
    "eliminate_nop_tile": "elimination.repeat:EliminateNopTile",
    "eliminate_nop_with_unit": "elimination.unit:EliminateNopWithUnit",
    "eliminate_addition_of_zero": "elimination.unit:EliminateAdditionOfZero",
    "eliminate_common_subexpression": "elimination.subexpression:EliminateCommonSubexpression",
    "eliminate_deadend": "elimination.dead:EliminateDeadend",
    "eliminate_unused_initializer": "elimination.dead:EliminateUnusedInitializer",
    "eliminate_duplicate_initializer": "elimination.duplicates:EliminateDuplicateInitializer",
}
