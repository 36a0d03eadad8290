"""Prints if the standard streams are terminals, and a line without an end."""

import os
import sys

rank = os.environ["RANK"]
print(f"[{rank}] {sys.stdout.isatty()} {sys.stderr.isatty()} {sys.stdin.isatty()}")
print(f"[{rank}] no end", end="")
