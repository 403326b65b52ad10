"""Passes that remove what does nothing."""

PASSES: dict[str, str] = {
    "eliminate_identity": "elimination.identity:EliminateIdentity",
}
