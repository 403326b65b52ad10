"""graphopt inside other tools: each module is for one tool, and needs it."""
