"""Each package's docstring lists all of its files and subpackages."""

import ast
import re
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[1] / "src"
PACKAGES = sorted(
    (file.parent for file in (SRC / "syncline").rglob("__init__.py")),
    key=lambda folder: folder.relative_to(SRC).parts,
)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda folder: str(folder.relative_to(SRC)))
def test_package_docstring_lists_all_of_its_files(package: Path) -> None:
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text("utf-8"))) or ""
    names = {file.stem for file in package.glob("*.py")} - {"__init__", "__main__"}
    names |= {folder.parent.name for folder in package.glob("*/__init__.py")}
    missing = sorted(name for name in names if not re.search(rf"\b{name}\b", docstring))
    assert missing == []
