"""Pipelines of passes: the registry, the text form, levels, and execution."""

from graphopt.pipeline.pipeline import INLINE, INLINED, LEVELS, Pipeline
from graphopt.pipeline.registry import Registry, registry
from graphopt.pipeline.run import Plan, execute, pipeline_of

__all__ = ["INLINE", "INLINED", "LEVELS", "Pipeline", "Plan", "Registry", "execute", "pipeline_of", "registry"]
