"""Passes that compute ahead what is already known."""

PASSES: dict[str, str] = {
    "extract_constant_to_initializer": "folding.constant:ExtractConstantToInitializer",
}
