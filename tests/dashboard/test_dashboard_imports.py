"""The dashboard starts without the libraries of trainings: they cost a second and 40 MB."""

import subprocess
import sys


def test_pages_load_no_library_of_trainings() -> None:
    code = (
        "import sys, syncline.dashboard.pages.routes; "
        "print([name for name in ('torch', 'pyarrow', 'numpy', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.strip() == "[]"
