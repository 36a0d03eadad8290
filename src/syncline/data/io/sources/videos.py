"""Read videos with PyAV: a row for each frame, in the columns `frame`, an array
`(height, width, 3)`, and `frame_index`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import fs as pyarrow_fs

from syncline.data.io import filesystem as filesystems
from syncline.data.io.sources.file_based_datasource import FileBasedDatasource
from syncline.optional import load

if TYPE_CHECKING:
    from syncline.data.columnar import block as blocks

# Size of blocks of decoded frames.
_BLOCK_BYTES = 16 * 1024**2


class VideoDatasource(FileBasedDatasource):
    """Reads videos; arguments as in `read_videos`, options as in `FileBasedDatasource`."""

    _FILE_EXTENSIONS = [
        "mp4",
        "mkv",
        "mov",
        "avi",
        "wmv",
        "flv",
        "webm",
        "m4v",
        "3gp",
        "mpeg",
        "mpg",
        "ts",
        "ogv",
        "rm",
        "rmvb",
        "vob",
        "asf",
        "f4v",
        "m2ts",
        "mts",
        "divx",
        "xvid",
        "mxf",
    ]

    def __init__(
        self,
        paths: filesystems.Paths,
        *,
        include_timestamps: bool = False,
        fps: int | None = None,
        resize: tuple[int, int] | None = None,
        **options: Any,
    ) -> None:
        load("av", purpose="read_videos", install="syncline[videos]")
        if fps is not None and (isinstance(fps, bool) or not isinstance(fps, int) or fps <= 0):
            raise ValueError(f"fps={fps!r}: pass the frames of a second, an int of at least 1")
        if resize is not None and (
            len(resize) != 2 or not all(isinstance(extent, int) and extent > 0 for extent in resize)
        ):
            raise ValueError(f"resize={resize}: pass a height and a width of at least 1")
        super().__init__(paths, **options)
        self.include_timestamps = include_timestamps
        self.fps = fps
        self.resize = resize

    def _open_input_source(
        self, filesystem: pyarrow_fs.FileSystem, path: str, **open_args: object
    ) -> pa.NativeFile:
        return filesystem.open_input_file(path)

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[blocks.Batch]:
        av = load("av", purpose="read_videos", install="syncline[videos]")
        try:
            with av.open(f) as container:
                yield from self._batches_of(container, path)
        except av.error.FFmpegError as error:
            raise ValueError(f"{path} cannot be read as a video: {error}") from error

    def _batches_of(self, container: Any, path: str) -> Iterator[dict[str, Any]]:
        if not container.streams.video:
            raise ValueError(f"{path} cannot be read as a video: it has no video stream")
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        rate = float(stream.average_rate or 0)
        stride = max(1, round(rate / self.fps)) if self.fps and rate else 1
        size = {} if self.resize is None else {"height": self.resize[0], "width": self.resize[1]}
        frames: list[np.ndarray] = []
        indices: list[int] = []
        times: list[tuple[float, float]] = []
        for index, frame in enumerate(container.decode(stream)):
            if index % stride:
                continue
            frames.append(frame.reformat(format="rgb24", **size).to_ndarray())
            indices.append(index)
            start = float(frame.time) if frame.time is not None else index / (rate or 1.0)
            times.append((start, start + (1 / rate if rate else 0.0)))
            if frames[0].nbytes * len(frames) >= _BLOCK_BYTES:
                yield self._batch(frames, indices, times)
                frames, indices, times = [], [], []
        if frames:
            yield self._batch(frames, indices, times)

    def _batch(
        self, frames: list[np.ndarray], indices: list[int], times: list[tuple[float, float]]
    ) -> dict[str, Any]:
        batch: dict[str, Any] = {"frame": np.stack(frames), "frame_index": np.array(indices)}
        if self.include_timestamps:
            batch["frame_timestamp"] = np.array(times)
        return batch

    def _options(self) -> object:
        return (self._open_stream_args, self.include_timestamps, self.fps, self.resize)
