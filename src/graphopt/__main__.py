"""`python -m graphopt`: the command `graphopt`, for an environment whose scripts are not on the path."""

from graphopt.cli import main

main()
