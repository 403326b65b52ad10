"""Where a model's time goes: by operator and level, alone and in the model, against the machine's limits."""

from __future__ import annotations

from graphopt.audit.profile.conduct import PARTS, profile
from graphopt.audit.profile.record import Block, Denormals, LevelTotal, Lone, Part, Profile, ThreadRow

__all__ = ["PARTS", "Block", "Denormals", "LevelTotal", "Lone", "Part", "Profile", "ThreadRow", "profile"]
