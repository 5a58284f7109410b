"""python: prints a line: for how long a program takes to begin."""

print("hello", flush=True)
