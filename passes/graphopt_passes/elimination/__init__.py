"""Passes that remove what does nothing."""

PASSES: dict[str, str] = {
    "eliminate_identity": "elimination.identity:EliminateIdentity",
    "eliminate_nop_dropout": "elimination.dropout:EliminateNopDropout",
    "eliminate_nop_cast": "elimination.cast:EliminateNopCast",
    "eliminate_nop_transpose": "elimination.transpose:EliminateNopTranspose",
    "eliminate_nop_reshape": "elimination.reshape:EliminateNopReshape",
    "eliminate_common_subexpression": "elimination.subexpression:EliminateCommonSubexpression",
    "eliminate_deadend": "elimination.dead:EliminateDeadend",
    "eliminate_unused_initializer": "elimination.dead:EliminateUnusedInitializer",
    "eliminate_duplicate_initializer": "elimination.duplicates:EliminateDuplicateInitializer",
}
