"""graphopt inside of other tools: each module is for one, and needs it."""
