"""`WorkingTree`: keeps the working tree of a git repository as an object, and restores one.

Included are all files that git does not ignore, also new ones. The index and the branch of the user
do not change: everything runs with a separate index. A reference `refs/syncline/NAME` keeps each
tree. Submodules are not followed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from syncline import settings

LIMIT_S = 120.0
"""Seconds that one call of git may take."""
MAX_DIFF_BYTES = 10_000_000
_EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
_NO_OBJECT = 1
"""Exit code of `git rev-parse --verify --quiet` for a missing object."""
_IDENTITY = {
    f"GIT_{role}_{field}": value
    for role in ("AUTHOR", "COMMITTER")
    for field, value in (("NAME", "syncline"), ("EMAIL", "syncline@localhost"))
}


class GitError(RuntimeError):
    """A call of git failed.

    Args:
        text: The call, and its error.
        code: Its exit code; None if it did not end.
    """

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(text)
        self.code = code


class WorkingTree:
    """The working tree around a directory.

    Args:
        directory: A directory in the repository.
        without: A directory whose files do not belong to the tree, such as that of the records.
    """

    def __init__(self, directory: str, without: str) -> None:
        self.root = _git(directory, "rev-parse", "--show-toplevel").strip()
        self._index = Path(self._run("rev-parse", "--absolute-git-dir").strip(), "index")
        inside = os.path.relpath(os.path.realpath(without), os.path.realpath(self.root))
        self._without = [] if inside.startswith("..") or inside == "." else [f":(exclude){inside}"]

    @classmethod
    def around(cls, directory: str, without: str) -> WorkingTree | None:
        """Return the working tree around a directory; None without a repository or without git."""
        if shutil.which("git") is None:
            return None
        try:
            return cls(directory, without)
        except GitError:
            return None

    @property
    def revision(self) -> str | None:
        """Commit that is checked out; None in a repository without commits."""
        try:
            return self._run("rev-parse", "--verify", "--quiet", "HEAD").strip() or None
        except GitError as error:
            if error.code != _NO_OBJECT:  # otherwise a failure would restore the empty tree
                raise
            return None

    def head_tree(self) -> str:
        """Return the tree of the checked-out commit; the empty tree before the first commit."""
        return self._run("rev-parse", "HEAD^{tree}").strip() if self.revision else _EMPTY_TREE

    def snapshot(self) -> str:
        """Return the current files as a tree object."""
        with self._own_index() as variables:
            self._run("add", "--all", "--", ":/", *self._without, variables=variables)
            return self._run("write-tree", variables=variables).strip()

    def keep(self, tree: str, name: str, text: str) -> None:
        """Keep a tree under `refs/syncline/NAME`, so that git does not remove it."""
        revision = self.revision
        parent = ["-p", revision] if revision is not None else []
        commit = self._run("commit-tree", tree, *parent, "-m", text, variables=_IDENTITY).strip()
        self._run("update-ref", f"refs/syncline/{name}", commit)

    def forget(self, tree: str, name: str) -> None:
        """Delete `refs/syncline/NAME` if it keeps this tree."""
        reference = f"refs/syncline/{name}"
        try:
            commit = self._run("rev-parse", "--verify", "--quiet", reference).strip()
        except GitError as error:
            if error.code != _NO_OBJECT:
                raise
            return
        if self._run("rev-parse", f"{commit}^{{tree}}").strip() == tree:
            self._run("update-ref", "-d", reference, commit)

    def diff(self, before: str, after: str) -> bytes:
        """Return the changes between two trees as a patch."""
        options = ("--no-ext-diff", "--no-textconv", "--no-color", "--binary")
        data = self._run_bytes("diff", *options, before, after)
        cut = b"\n(cut off here)\n" if len(data) > MAX_DIFF_BYTES else b""
        return data[:MAX_DIFF_BYTES] + cut

    def restore(self, begin: str, target: str) -> list[str]:
        """Restore the files that differ between the trees `begin` and `target` to `target`. Return
        the paths of files that have neither version now; they stay as they are.
        """
        now = self.snapshot()
        wanted = self._changes(begin, target)
        done = self._changes(now, target)
        changed = self._changes(begin, now)
        left = sorted(path for path in wanted if path in done and path in changed)
        to_write: list[str] = []
        to_delete: list[str] = []
        for path, status in wanted.items():
            if path in done and path not in changed:
                (to_delete if status == "D" else to_write).append(path)
        for path in to_delete:  # first, because a file may become a directory
            self._delete(path)
        if to_write:
            with self._own_index() as variables:
                self._run("read-tree", target, variables=variables)
                self._run(
                    *("checkout-index", "--force", "-z", "--stdin"),
                    variables=variables,
                    stdin="\0".join(to_write) + "\0",
                )
        return left

    def _delete(self, path: str) -> None:
        file = Path(self.root, path)
        file.unlink(missing_ok=True)
        for folder in file.parents:  # git knows no empty directories
            if folder == Path(self.root):
                return
            try:
                folder.rmdir()
            except OSError:
                return

    def _changes(self, before: str, after: str) -> dict[str, str]:
        """Return the changed paths between two trees with A, D, M or T."""
        words = self._run(
            "diff-tree", "-r", "-z", "--no-renames", "--name-status", before, after
        ).split("\0")
        return dict(zip(words[1::2], words[0::2], strict=False))

    @contextmanager
    def _own_index(self) -> Iterator[dict[str, str]]:
        """Yield variables for an index that is a copy of the user's."""
        with tempfile.TemporaryDirectory(prefix="syncline-index-") as directory:
            index = Path(directory, "index")
            if self._index.exists():
                # It has sizes and times of files; its own time tells which of them may be wrong.
                shutil.copy2(self._index, index)
            yield {"GIT_INDEX_FILE": str(index)}

    def _run(
        self, *arguments: str, variables: Mapping[str, str] | None = None, stdin: str = ""
    ) -> str:
        data = self._run_bytes(*arguments, variables=variables, stdin=stdin)
        return data.decode(errors="surrogateescape")

    def _run_bytes(
        self, *arguments: str, variables: Mapping[str, str] | None = None, stdin: str = ""
    ) -> bytes:
        return _git_bytes(self.root, *arguments, variables=variables, stdin=stdin)


def _git(directory: str, *arguments: str) -> str:
    return _git_bytes(directory, *arguments).decode(errors="surrogateescape")


def _git_bytes(
    directory: str, *arguments: str, variables: Mapping[str, str] | None = None, stdin: str = ""
) -> bytes:
    command = ["git", "-c", "core.fsmonitor=false", "-c", "core.quotepath=false", *arguments]
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env={**settings.inherited_environment(), "LC_ALL": "C", **(variables or {})},
            input=stdin.encode(errors="surrogateescape"),
            capture_output=True,
            timeout=LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GitError(f"`{' '.join(command)}` in {directory}: {error}") from error
    if done.returncode != 0:
        text = done.stderr.decode(errors="replace").strip()
        raise GitError(f"`{' '.join(command)}` in {directory} failed: {text}", done.returncode)
    return done.stdout
