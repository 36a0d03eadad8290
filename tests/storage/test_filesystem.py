"""Local directories: durability."""

from pathlib import Path

import pytest

from syncline.storage import filesystem


def test_flush_of_a_directory_leaves_out_files_that_another_process_may_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unfinished = tmp_path / "inner" / f"{filesystem.TEMPORARY_PREFIX}1"
    unfinished.parent.mkdir()
    for path in (unfinished, tmp_path / "inner/state", tmp_path / "model.pt"):
        path.touch()
    flushed: list[str] = []

    def sync(path: str) -> None:
        unfinished.unlink(missing_ok=True)  # renamed by its writer
        assert Path(path).exists()
        flushed.append(str(Path(path).relative_to(tmp_path)))

    monkeypatch.setattr(filesystem, "sync", sync)
    filesystem.sync_directory(str(tmp_path))
    assert flushed == ["inner/state", "inner", "model.pt", "."]
