"""`RecordPlace`: where executions of a dataset are recorded, where that is not in a run directory
of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from syncline.runs import Files


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordPlace:
    """A run directory, and the name that the run has for the dataset. Part of a dataset's settings,
    and as picklable as `files`.
    """

    files: Files
    """The run directory."""
    dataset: str
    """Names the files, and is shown."""
    key: str
    """The same in all copies of this place and in no other place: a process keeps one file for
    it.
    """

    def __deepcopy__(self, memo: dict[int, Any]) -> RecordPlace:
        return self  # filesystems need not know how to be copied
