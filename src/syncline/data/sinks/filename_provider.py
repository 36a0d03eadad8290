"""`FilenameProvider`: names of the files that a dataset is written to."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


class FilenameProvider:
    """Names files; subclass it to choose the names.

    A name must follow from the arguments alone, and differ for different `task_index`: a task that
    runs again replaces its own file, and a job that goes on finds what it has written. For sinks
    that write a file for each row, `_{block_index:06}_{row_index:06}` is added before the
    extension, unless the subclass names rows itself.

    Args:
        dataset_uuid: Put before every name.
        file_format: Extension without its dot.
    """

    def __init__(self, dataset_uuid: str | None = None, file_format: str | None = None) -> None:
        self.dataset_uuid = dataset_uuid
        self.file_format = file_format

    def get_filename_for_task(self, write_uuid: str, task_index: int) -> str:
        """Name of the file of one write task.

        Args:
            write_uuid: The job; other jobs have others, so that a name with it never meets an older
            file. task_index: The position in the input.
        """
        prefix = "" if self.dataset_uuid is None else f"{self.dataset_uuid}_"
        suffix = "" if self.file_format is None else f".{self.file_format}"
        return f"{prefix}{write_uuid}_{task_index:06}{suffix}"

    def get_filename_for_block(
        self, block: pa.Table | None, write_uuid: str, task_index: int, block_index: int
    ) -> str:
        """Older form of `get_filename_for_task`; used where a subclass implements it."""
        return self.get_filename_for_task(write_uuid, task_index)

    def get_filename_for_row(
        self,
        row: dict[str, Any],
        write_uuid: str,
        task_index: int,
        block_index: int,
        row_index: int,
    ) -> str:
        """Name of the file of one row, from the name of its task; used where a subclass implements
        it.
        """
        stem, extension = split_extension(self.get_filename_for_task(write_uuid, task_index))
        return f"{stem}_{block_index:06}_{row_index:06}{extension}"


def split_extension(name: str) -> tuple[str, str]:
    """A name without and with its extension: ("part", ".csv"), or (name, "") if it has none."""
    stem, dot, extension = name.rpartition(".")
    return (stem, f".{extension}") if dot else (name, "")
