"""TensorBoard file with the images and histograms of a run."""

from __future__ import annotations

import os
import socket

from syncline.runs import event_file
from syncline.runs.json_values import Record
from syncline.runs.media import MediaValue
from syncline.runs.record_files import Files, append_whole
from syncline.runs.run_directory import MEDIA_DIRECTORY

MAX_EVENT_BYTES = 50_000_000
"""Maximum bytes of the file of one start."""


class MediaEventWriter:
    """Writer of images and histograms to a TensorBoard file in `media/`, which TensorBoard shows as
    a separate run. For local records; does nothing for others. Not thread-safe.

    Args:
        files: The run directory.
    """

    def __init__(self, files: Files) -> None:
        self._root = files.local_path
        self._descriptor: int | None = None
        self._bytes = 0

    def add(self, step: int, metrics: Record, time_s: float) -> None:
        """Write the images and histograms of a report.

        Raises:
            OSError: There is no room, or an image cannot be read.
        """
        root = self._root
        found = {name: media for name, value in metrics.items() if (media := MediaValue.of(value))}
        if root is None or not found or self._bytes > MAX_EVENT_BYTES:
            return
        summary = b"".join(_summary(root, name, media) for name, media in found.items())
        data = event_file.record(event_file.summary_event(time_s, step, summary))
        if self._descriptor is None:
            directory = os.path.join(root, MEDIA_DIRECTORY)
            os.makedirs(directory, exist_ok=True)
            name = f"events.out.tfevents.{int(time_s * 1000):013d}.{socket.gethostname()}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._descriptor = os.open(os.path.join(directory, name), flags, 0o666)
            data = event_file.record(event_file.first_event(time_s)) + data
        append_whole(self._descriptor, data)
        self._bytes += len(data)

    def close(self) -> None:
        """Close the file; later reports go to a new one."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None


def _summary(root: str, name: str, media: MediaValue) -> bytes:
    if not media.file:
        return event_file.binned_histogram(name, media.counts, media.edges)
    with open(os.path.join(root, media.file), "rb") as file:
        return event_file.image(name, file.read(), media.width, media.height)
