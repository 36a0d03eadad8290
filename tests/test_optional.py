"""Libraries that are not installed are named with the line that installs them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from syncline.optional import load, require


@pytest.mark.parametrize("demand", [load, require])
def test_a_missing_library_is_named_with_its_remedy(demand) -> None:
    with pytest.raises(
        ImportError,
        match=(
            r"read_x needs the library 'no_such', which is not installed: pip install"
            r" 'syncline\[x\]'"
        ),
    ):
        demand("no_such.part", purpose="read_x", install="syncline[x]")


def test_requiring_imports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "library_that_fails.py").write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    require("library_that_fails.part", purpose="read_x", install="x")
    assert "library_that_fails" not in sys.modules


def test_a_folder_with_the_name_of_a_library_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_a_folder").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match="only_a_folder"):
        require("only_a_folder", purpose="read_x", install="x")
