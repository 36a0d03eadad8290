"""Run with `-m tool`, or as a directory."""

import os
import sys

print(f"[{os.environ['RANK']}] main {__name__} {__spec__.name} {os.path.basename(sys.path[0])}")
