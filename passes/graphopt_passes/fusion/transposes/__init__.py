"""Transposes moved through a graph: what operators do with permuted inputs, which of them to change, and the change."""
