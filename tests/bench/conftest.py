"""The benchmarks are not part of the installed package: the repository's root, where `bench` lies,
goes on the path.
"""

import sys
from pathlib import Path

ROOT = str(Path(__file__).resolve().parents[2])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)
