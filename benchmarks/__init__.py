"""The evidence for graphopt's claims: a zoo of real models, synthetic graphs, and measurements on them."""
