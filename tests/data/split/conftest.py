"""Lets the tests of splits use the helpers of the folder above."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
