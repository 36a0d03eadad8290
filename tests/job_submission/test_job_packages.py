"""Packages: directories as zip files for the workers of a job."""

import pytest

from syncline.job_submission import packages
from syncline.job_submission.errors import JobError


@pytest.fixture
def directory(tmp_path):
    folder = tmp_path / "program"
    (folder / "part").mkdir(parents=True)
    (folder / "train.py").write_text("print(1)\n")
    (folder / "part" / "model.py").write_text("x = 1\n")
    (folder / "part" / "data.bin").write_bytes(b"0" * 1000)
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "train.pyc").write_bytes(b"")
    return folder


def test_same_files_give_the_same_package_and_others_another(directory):
    first = packages.pack(str(directory))
    (directory / "train.py").touch()
    assert packages.pack(str(directory)) == first
    (directory / "train.py").write_text("print(2)\n")
    assert packages.pack(str(directory)).name != first.name


def test_directory_that_is_too_large_or_missing_is_refused(directory, tmp_path):
    with pytest.raises(JobError, match="part/data.bin"):
        packages.pack(str(directory), limit_bytes=500)
    with pytest.raises(JobError, match="not a directory"):
        packages.pack(str(tmp_path / "missing"))


@pytest.mark.parametrize(
    ("path", "pattern", "is_excluded"),
    [
        ("a/b.bin", "*.bin", True),
        ("a/b", "b", True),
        ("a/b", "a/b", True),
        ("c/a/b", "a/b", False),
        ("a/b", "/b", False),
        ("b", "/b", True),
    ],
)
def test_patterns_exclude_by_name_or_by_path(path, pattern, is_excluded):
    assert packages.excluded(path, [pattern]) is is_excluded
