"""What graphopt's claims stand on: a zoo of real models, synthetic graphs, and the measurements over them."""
