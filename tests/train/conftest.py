"""Makes `storage/remote_filesystems.py` importable in the tests of all subfolders."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "storage"))
