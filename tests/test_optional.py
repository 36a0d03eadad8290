"""Libraries that are not installed are named with the line that installs them."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import pytest

from syncline.optional import load, require, without_collections


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


def test_no_garbage_is_collected_during_imports_and_all_objects_count_as_old_after_them() -> None:
    was_frozen = gc.get_freeze_count() > 0  # by the tests' own process
    gc.unfreeze()
    try:
        with without_collections():
            assert not gc.isenabled()
            seen = [[number] for number in range(10_000)]
        assert gc.isenabled()
        assert gc.get_freeze_count() == 0
        assert any(each is seen[0] for each in gc.get_objects(generation=2))
    finally:
        if was_frozen:
            gc.freeze()


def test_collections_that_the_program_has_turned_off_stay_off() -> None:
    gc.disable()
    try:
        with pytest.raises(ImportError), without_collections():
            raise ImportError
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_objects_that_the_program_has_frozen_stay_frozen() -> None:
    was_frozen = gc.get_freeze_count() > 0
    gc.freeze()
    try:
        with without_collections():
            pass
        assert gc.get_freeze_count() > 0
        assert gc.isenabled()
    finally:
        if not was_frozen:
            gc.unfreeze()
