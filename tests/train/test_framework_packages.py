"""Framework packages: a clear error without their library, and lazy import of it."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

PACKAGES = ("xgboost", "lightgbm", "tensorflow", "jax")


@pytest.mark.parametrize("library", ["xgboost", "lightgbm", "tensorflow"])
def test_package_without_its_library_raises_import_error_with_remedy(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = f"syncline.train.{library}"
    for name in [name for name in sys.modules if name.startswith(package)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(
        ImportError,
        match=rf"'{library}', which is not installed: pip install 'syncline\[{library}\]'",
    ):
        __import__(package)


def test_importing_packages_and_creating_trainers_imports_no_framework() -> None:
    installed = [
        name for name in PACKAGES if name == "jax" or (spec := find_spec(name)) and spec.origin
    ]
    program = f"""
import sys
from importlib import import_module
from syncline.train import Checkpoint, DataParallelTrainer
for name in {installed!r}:
    package = import_module(f"syncline.train.{{name}}")
    for value in vars(package).values():
        if isinstance(value, type) and issubclass(value, DataParallelTrainer):
            value(print)
print(*[name for name in {PACKAGES!r} if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
