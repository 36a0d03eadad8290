"""`ReplayBuffers`: the buffers of an algorithm by module, and their incremental checkpoints.

Complete rows never change. A checkpoint therefore writes only the rows since the last checkpoint,
as a file called a segment, and links to the earlier segments. As in a log-structured merge tree, a
new segment absorbs older segments that are not larger; a buffer of a million rows has about ten.
Values that change in all rows, such as priorities and ring positions, are part of the state.

Covered: local directories and URIs (where all live rows are written each time). Not covered: the
buffers themselves (`replay_columns`).
"""

from __future__ import annotations

import os
import pickle
import uuid
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from syncline.rl.buffers.replay_columns import ReplayColumns
from syncline.rl.checkpointable import Checkpointable, StateDict
from syncline.rl.value_types import CallArguments
from syncline.storage import filesystem as files


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A file with rows of all rings of a buffer."""

    name: str
    """Name of the file."""
    starts: np.ndarray
    """First row of each ring, as the number of rows before it."""
    stops: np.ndarray
    """The row after the last one of each ring."""

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return int((self.stops - self.starts).sum())


class ReplayBuffers(Checkpointable, dict[str, ReplayColumns]):
    """Buffers by module id.

    Args:
        create: Returns the buffer of a module id; creates it with the given number of rings.
    """

    def __init__(self, create: Callable[[str, int], ReplayColumns]) -> None:
        super().__init__()
        self._create = create
        self._segments: dict[str, list[Segment]] = {}
        self._paths: dict[str, str] = {}
        """Latest location of each segment file, by name."""

    # -- whole states

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: object,
    ) -> StateDict:
        """Return the states of all buffers, by module id."""
        return {module_id: buffer.get_state() for module_id, buffer in self.items()}

    def set_state(self, state: StateDict) -> None:
        """Set the states of all buffers."""
        for module_id, saved in state.items():
            self._renewed(module_id, len(saved["heads"])).set_state(saved)

    def _renewed(self, module_id: str, width: int) -> ReplayColumns:
        """Replace the buffer of a module with a new one; return it."""
        self.pop(module_id, None)
        return self._create(module_id, width)

    def get_ctor_args_and_kwargs(self) -> CallArguments:
        """Return no arguments because only an algorithm creates buffers."""
        return (), {}

    # -- incremental checkpoints

    def _write(
        self, filesystem: object, target: str, state: StateDict | None, use_msgpack: bool
    ) -> None:
        if state is None:
            state = {
                module_id: self._write_buffer(filesystem, target, module_id, buffer)
                for module_id, buffer in self.items()
            }
        super()._write(filesystem, target, state, False)

    def _write_buffer(
        self, filesystem: object, target: str, module_id: str, buffer: Any
    ) -> StateDict:
        """Write the new rows of a buffer; return its state without rows, and its segments."""
        if not isinstance(buffer, ReplayColumns):
            state: StateDict = buffer.get_state()
            return state
        begins, heads = buffer.live_rows()
        segments = [
            each
            for each in self._segments.get(module_id, [])
            if len(each.stops) == len(heads) and (each.stops > begins).any()
        ]
        starts = np.maximum(segments[-1].stops if segments else begins, begins)
        while segments and segments[-1].num_rows <= int((heads - starts).sum()):
            starts = np.maximum(segments.pop().starts, begins)
        if (heads > starts).any():
            name = f"rows-{uuid.uuid4().hex}.pkl"
            segments.append(Segment(name=name, starts=starts, stops=heads))
        self._segments[module_id] = segments
        for each in segments:
            self._write_segment(filesystem, files.join(target, each.name), buffer, each)
        return {**buffer.get_state(rows=False), "segments": segments}

    def _write_segment(
        self, filesystem: object, path: str, buffer: ReplayColumns, segment: Segment
    ) -> None:
        known = self._paths.get(segment.name)
        if files.is_local(filesystem) and known is not None:
            with suppress(OSError):
                os.makedirs(os.path.dirname(path), exist_ok=True)
                os.link(known, path)
                self._paths[segment.name] = path
                return
        begins, _ = buffer.live_rows()
        starts = np.maximum(segment.starts, begins)
        content = (starts, segment.stops, buffer.rows(starts, segment.stops))
        files.write_bytes(filesystem, path, pickle.dumps(content, protocol=5), durable=False)
        self._paths[segment.name] = path

    def save_to_path(self, path: Any = None, **options: Any) -> str:
        """Save to a directory and return its path. See `Checkpointable.save_to_path`."""
        written = super().save_to_path(path, **options)
        self.moved_to(written)
        return written

    def moved_to(self, directory: str) -> None:
        """Record the directory that contains the files written last."""
        for name in self._paths:
            place = os.path.join(directory, name)
            if os.path.exists(place):
                self._paths[name] = place

    def _read_state(self, filesystem: object, source: str) -> StateDict:
        whole = super()._read_state(filesystem, source)
        for module_id, saved in list(whole.items()):
            if "segments" not in saved:
                continue
            segments = whole.pop(module_id).pop("segments")
            buffer = self._renewed(module_id, len(saved["heads"]))
            saved["rows"] = [
                _read_segment(filesystem, files.join(source, each.name)) for each in segments
            ]
            self._segments[module_id] = segments
            if files.is_local(filesystem):
                self._paths.update(
                    {each.name: os.path.join(source, each.name) for each in segments}
                )
            buffer.set_state(saved)
        return whole


def _read_segment(filesystem: object, path: str) -> Any:
    content = files.read_bytes(filesystem, path)
    if content is None:
        raise FileNotFoundError(
            f"The checkpoint of the replay buffer is incomplete: {path!r} is missing."
        )
    return pickle.loads(content)
