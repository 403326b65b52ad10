"""What is outside of the program, one room each: files, processes, sessions of the runtime, the machine."""
