"""`results.jsonl` in the experiment directory: the results of trials that ended within their batch
(`isolation="worker"`), one trial a line, instead of files in a directory for each of them.

    {"trial": "a1b2_00003", "directory": "train_a1b2_00003", "results": [{…}, {…}]}

The last line of a trial counts: a search that was killed may run a trial again. A line without
`results` says that the results are in the trial's directory from then on. `logger.write_files`
writes the files of trials from their lines.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Sequence
from functools import lru_cache

from pyarrow import fs as pyarrow_fs

from syncline.runs.record_files import LineFile
from syncline.storage import filesystem as directories
from syncline.tune.experiment.trial import Trial
from syncline.tune.result import Metrics

RESULTS_FILE = "results.jsonl"
_DIRECTORY, _RESULTS = "directory", "results"


class ResultsFile:
    """Appends to the file of one search. Single writer; not thread-safe.

    Args:
        directory: Experiment directory, which is local.
        resumed: The search may have written to the file before.
    """

    def __init__(self, directory: str, *, resumed: bool) -> None:
        self._directory = directory
        self._lines: LineFile | None = None
        self._changes: dict[str, bool] = {}  # whether the file has the results of a directory
        self._earlier: Collection[str] | None = None if resumed else ()  # None: not read yet

    def __contains__(self, trial: Trial) -> bool:
        """Return True if the results of a trial are in the file."""
        changed = self._changes.get(trial.relative_logdir)
        if changed is not None:
            return changed
        if self._earlier is None:
            self._earlier = _known(pyarrow_fs.LocalFileSystem(), self._directory).keys()
        return trial.relative_logdir in self._earlier

    def append(self, trial: Trial, results: Sequence[bytes]) -> None:
        """Append all results of a trial, each of them JSON."""
        directory = trial.relative_logdir
        self._append(
            b'{"trial": %b, "directory": %b, "results": [%b]}\n'
            % (
                json.dumps(trial.trial_id).encode(),
                json.dumps(directory).encode(),
                b", ".join(result.rstrip(b"\n") for result in results),
            )
        )
        self._changes[directory] = True

    def leave_to_directory(self, trial: Trial) -> None:
        """Note that the results of a trial are in its directory from now on."""
        line = {"trial": trial.trial_id, _DIRECTORY: trial.relative_logdir}
        self._append(json.dumps(line).encode() + b"\n")
        self._changes[trial.relative_logdir] = False

    def _append(self, line: bytes) -> None:
        if self._lines is None:
            self._lines = LineFile(os.path.join(self._directory, RESULTS_FILE))
        self._lines.append(line)

    def close(self) -> None:
        """Close the file; nothing is buffered."""
        if self._lines is not None:
            self._lines.close()
            self._lines = None


def read_results(filesystem: pyarrow_fs.FileSystem, trial_path: str) -> list[Metrics] | None:
    """Return the results of the trial with this directory; None if they are not in the file."""
    experiment, _, directory = trial_path.rstrip("/").rpartition("/")
    line = _known(filesystem, experiment).get(directory)
    results: list[Metrics] | None = json.loads(line)[_RESULTS] if line is not None else None
    return results


def _known(filesystem: pyarrow_fs.FileSystem, experiment: str) -> dict[str, bytes]:
    """Return the valid line of each trial by the name of its directory."""
    path = directories.join(experiment, RESULTS_FILE)
    info = filesystem.get_file_info(path)
    if not info.is_file:
        return {}
    return _parsed(_Version(filesystem, path, info.size, info.mtime_ns))


class _Version:
    """Version of a file; equal ones have the same content."""

    def __init__(
        self, filesystem: pyarrow_fs.FileSystem, path: str, size: int, changed_ns: int
    ) -> None:
        self.filesystem = filesystem
        self.path = path
        self._key = path, size, changed_ns

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _Version)
            and self._key == other._key
            and bool(self.filesystem == other.filesystem)
        )


@lru_cache(maxsize=4)  # a table of each trial would otherwise read the whole file
def _parsed(version: _Version) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    data = directories.read_bytes(version.filesystem, version.path) or b""
    for line in data.split(b"\n")[:-1]:  # a kill may have cut off the last line
        try:
            parsed = json.loads(line)
        except ValueError:
            continue
        if _RESULTS in parsed:
            found[parsed[_DIRECTORY]] = line
        else:
            found.pop(parsed[_DIRECTORY], None)
    return found
