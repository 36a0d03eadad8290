"""Snapshots of a git repository's files, and restoring them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from syncline.launcher.working_tree import GitError, WorkingTree


def git(directory: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return subprocess.run(
        command, cwd=directory, check=True, capture_output=True, text=True
    ).stdout.strip()


def files(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): path.read_text()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and ".git" not in path.parts
    }


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    (root / "pkg").mkdir(parents=True)
    (root / "train.py").write_text("lr = 1\n")
    (root / "pkg" / "model.py").write_text("width = 1\n")
    (root / ".gitignore").write_text("*.ckpt\n")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    return root


@pytest.fixture
def tree(repository: Path) -> WorkingTree:
    found = WorkingTree.around(str(repository / "pkg"), without=str(repository / "runs"))
    assert found is not None
    return found


def test_a_snapshot_of_unchanged_files_is_the_commit(tree: WorkingTree) -> None:
    assert tree.snapshot() == tree.head_tree()


def test_all_kinds_of_changes_are_restored_and_the_index_is_left_alone(
    repository: Path, tree: WorkingTree
) -> None:
    (repository / "staged.py").write_text("staged\n")
    git(repository, "add", "staged.py")
    target, before = tree.snapshot(), files(repository)
    index = git(repository, "ls-files", "--stage")
    (repository / "train.py").write_text("lr = 2\n")
    (repository / "pkg" / "model.py").unlink()
    (repository / "pkg" / "deep").mkdir()
    (repository / "pkg" / "deep" / "new.py").write_text("new\n")
    (repository / "staged.py").rename(repository / "renamed.py")
    begin = tree.snapshot()
    assert begin != target
    assert tree.restore(begin, target) == []
    assert files(repository) == before
    assert not (repository / "pkg" / "deep").exists()
    assert git(repository, "ls-files", "--stage") == index


def test_ignored_files_and_records_do_not_belong_to_the_tree(
    repository: Path, tree: WorkingTree
) -> None:
    target = tree.snapshot()
    (repository / "model.ckpt").write_text("weights")
    (repository / "runs").mkdir()
    (repository / "runs" / "run.json").write_text("{}")
    assert tree.snapshot() == target


def test_files_that_changed_during_the_experiment_are_left(
    repository: Path, tree: WorkingTree
) -> None:
    target = tree.snapshot()
    (repository / "train.py").write_text("lr = 2\n")
    (repository / "pkg" / "model.py").write_text("width = 2\n")
    begin = tree.snapshot()
    (repository / "train.py").write_text("lr = 3\n")  # the user works on
    (repository / "results.txt").write_text("of the program\n")
    assert tree.restore(begin, target) == ["train.py"]
    assert (repository / "train.py").read_text() == "lr = 3\n"
    assert (repository / "pkg" / "model.py").read_text() == "width = 1\n"
    assert (repository / "results.txt").exists()


def test_an_interrupted_restore_can_be_repeated(repository: Path, tree: WorkingTree) -> None:
    target, before = tree.snapshot(), files(repository)
    (repository / "train.py").write_text("lr = 2\n")
    (repository / "pkg" / "model.py").write_text("width = 2\n")
    begin = tree.snapshot()
    (repository / "train.py").write_text("lr = 1\n")  # restored before the kill
    assert tree.restore(begin, target) == []
    assert files(repository) == before


def test_a_kept_tree_survives_garbage_collection(repository: Path, tree: WorkingTree) -> None:
    (repository / "train.py").write_text("lr = 2\n")
    begin = tree.snapshot()
    tree.keep(begin, "run-1", "an experiment")
    git(repository, "gc", "--prune=now", "--quiet")
    assert git(repository, "show", "refs/syncline/run-1:train.py") == "lr = 2"
    assert git(repository, "branch", "--list").endswith(git(repository, "branch", "--show-current"))


def test_only_the_reference_that_keeps_the_tree_is_deleted(
    repository: Path, tree: WorkingTree
) -> None:
    first = tree.snapshot()
    tree.keep(first, "run-1", "experiment run-1")
    (repository / "train.py").write_text("lr = 2\n")
    tree.forget(tree.snapshot(), "run-1")  # another run had the same name
    assert git(repository, "for-each-ref", "refs/syncline")
    tree.forget(first, "run-1")
    assert not git(repository, "for-each-ref", "refs/syncline")
    tree.forget(first, "run-1")


def test_the_diff_is_a_patch(repository: Path, tree: WorkingTree) -> None:
    (repository / "train.py").write_text("lr = 2\n")
    (repository / "new.bin").write_bytes(bytes(range(256)))
    begin = tree.snapshot()
    patch = tree.diff(tree.head_tree(), begin)
    git(repository, "checkout", "-q", ".")
    os.unlink(repository / "new.bin")
    subprocess.run(["git", "apply"], cwd=repository, input=patch, check=True)
    assert tree.snapshot() == begin


def test_a_repository_without_commits(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "a.py").write_text("a\n")
    tree = WorkingTree.around(str(tmp_path), without="/nowhere")
    assert tree is not None
    assert tree.revision is None
    snapshot = tree.snapshot()
    tree.keep(snapshot, "run", "text")
    assert b"a.py" in tree.diff(tree.head_tree(), snapshot)


def test_outside_a_repository_there_is_no_tree(tmp_path: Path) -> None:
    assert WorkingTree.around(str(tmp_path), without="/nowhere") is None


def test_a_failure_of_git_is_no_repository_without_commits(
    repository: Path, tree: WorkingTree
) -> None:
    (repository / ".git").rename(repository / "moved")
    with pytest.raises(GitError, match="not a git repository"):
        tree.head_tree()
