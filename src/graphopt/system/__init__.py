"""The environment of the program: files, processes, sessions of the runtime, the machine."""
