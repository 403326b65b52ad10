"""Moving transposes through a graph: how operators commute with permutations, which to change, and the rewrite."""
