"""The pass library of graphopt."""
