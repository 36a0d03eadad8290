"""Rank 0 reads standard input."""

import os
import sys

if os.environ["RANK"] == "0":
    print("[0] first", input())
    print("[0] rest", sys.stdin.read().split())
    print("[0]", sys.stdin.encoding, sys.stdin.mode, sys.stdin.name, sys.stdin.fileno())
