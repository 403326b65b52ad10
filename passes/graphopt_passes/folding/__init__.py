"""Passes that compute ahead what is already known."""

PASSES: dict[str, str] = {
    "fold_constants": "folding.constants:FoldConstants",
    "extract_constant_to_initializer": "folding.constant:ExtractConstantToInitializer",
}
