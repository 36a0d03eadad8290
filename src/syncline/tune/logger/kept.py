"""`KeptRun`: which run of a tracker belongs to a training run, kept in its run directory, so that a
restarted program goes on in it.
"""

from __future__ import annotations

import json
import re

from syncline.runs.json_values import encode
from syncline.runs.run_directory import TRACKERS_DIRECTORY
from syncline.train.storage.context import ArrowFiles

_NOT_IN_NAMES = re.compile(r"[^\w.-]+")


class KeptRun:
    """A file of the run directory that holds the tracker's name of its run.

    Args:
        files: The run directory.
        who: Who keeps it: the tracker and its project.
    """

    def __init__(self, files: ArrowFiles, who: str) -> None:
        self._files = files
        self._name = f"{TRACKERS_DIRECTORY}/{_NOT_IN_NAMES.sub('-', who).strip('-.').lower()}.json"

    def read(self) -> str | None:
        """The tracker's name of its run; None if there is none, or if the file is damaged: the
        tracker gets a new run then.
        """
        data = self._files.read(self._name)
        try:
            kept = json.loads(data) if data is not None else None
        except ValueError:
            return None
        key = kept.get("run") if isinstance(kept, dict) else None
        return key if isinstance(key, str) else None

    def write(self, key: str) -> None:
        """Keep it. OSError if it cannot be written."""
        if self.read() != key:
            self._files.write(self._name, encode({"run": key}))
