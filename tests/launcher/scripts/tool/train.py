"""Run with `-m tool.train`."""

import os
import sys

from .values import VALUE

print(f"[{os.environ['RANK']}] {__name__} {__package__} {__spec__.name} {VALUE} {sys.argv[1:]}")
print(f"[{os.environ['RANK']}] {os.path.basename(sys.argv[0])} {sys.path[0] == os.getcwd()}")
