"""State of a training function to and from a snapshot: a description, and regions of memory.

The description is a pickle stream of the state in which tensors and arrays are numbers of regions.
Objects that have `state_dict` and `load_state_dict`, such as modules and optimizers, are replaced
by their state dicts. Values that cannot be pickled, such as generators and sockets, are errors that
name the value's place in the state.
"""

from __future__ import annotations

import ctypes
import io
import pickle
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

import cloudpickle
import numpy as np

from syncline.core.serializability import find_unpicklable
from syncline.train.snapshots.slot import Region, SnapshotSlot, region_offsets

if TYPE_CHECKING:
    from types import ModuleType

VERSION = 1


class StatefulObject(Protocol):
    """Object whose state can be saved and restored."""

    def state_dict(self) -> Any:
        """Return the state."""

    def load_state_dict(self, state: Any, /) -> object:
        """Restore a state."""


@dataclass(frozen=True, kw_only=True)
class Capture:
    """A state, ready to be written."""

    description: bytes
    regions: Sequence[Region]
    wait: Callable[[], None] | None = None
    """Waits until the regions have their values; None if they have them already."""

    @property
    def sizes(self) -> list[int]:
        """Bytes of each region."""
        return [region.nbytes for region in self.regions]


def capture(state: object, readers: bytes, *, has_shards: bool = True) -> Capture:
    """Return a state of the program and the result of `Readers.capture`, without copying tensors.

    Args:
        state: The state.
        readers: The result of `Readers.capture`.
        has_shards: False to refuse parts of sharded tensors, which are no `DTensor`s when loaded.

    Raises:
        TypeError: Part of the state cannot be captured; the message names it.
    """
    state = with_state_dicts(state)
    stream = io.BytesIO()
    pickler = _Pickler(stream, has_shards=has_shards)
    try:
        pickler.dump(state)
    except Exception as error:
        raise _uncapturable(state, error, has_shards) from error
    description = {
        "version": VERSION,
        "state": stream.getvalue(),
        "entries": pickler.entries,
        "sizes": [region.nbytes for region in pickler.regions],
        "readers": readers,
    }
    return Capture(
        description=pickle.dumps(description, 5), regions=pickler.settled(), wait=pickler.wait
    )


def with_state_dicts(value: object) -> object:
    """Replace objects in containers by their state dicts."""
    if type(value) is dict:
        return {
            key: with_state_dicts(each) for key, each in cast("dict[Any, object]", value).items()
        }
    if type(value) in (list, tuple):
        items = map(with_state_dicts, cast("Sequence[object]", value))
        return list(items) if type(value) is list else tuple(items)
    if is_stateful(value):
        return with_state_dicts(cast(StatefulObject, value).state_dict())
    return value


def is_stateful(value: object) -> bool:
    """Return True if the state of an object can be saved and restored."""
    return (
        callable(getattr(value, "state_dict", None))
        and callable(getattr(value, "load_state_dict", None))
        and not isinstance(value, type)
    )


class SavedState:
    """A captured state in a file.

    Args:
        slot: The file, which has a complete snapshot.

    Raises:
        ValueError: It is damaged.
    """

    def __init__(self, slot: SnapshotSlot) -> None:
        self._slot = slot
        self._description = pickle.loads(slot.description())
        version = self._description["version"]
        if version != VERSION:
            raise ValueError(
                f"The snapshot {slot.path} has version {version!r}, but this syncline reads "
                f"{VERSION}."
            )
        self._offsets = region_offsets(self._description["sizes"])

    @property
    def readers(self) -> bytes:
        """Result of `Readers.capture` at the snapshot."""
        return bytes(self._description["readers"])

    def load(self) -> Any:
        """Return the state, with tensors and arrays in memory of their own."""
        return _Unpickler(io.BytesIO(self._description["state"]), self._value).load()

    def view(self) -> Any:
        """Return the state, with tensors and arrays that are views of the file."""
        data = self._slot.view()

        def value(number: int) -> object:
            kind, region, facts = self._description["entries"][number]
            begin = self._offsets[region]
            part = data[begin : begin + self._description["sizes"][region]]
            if kind == "array":
                dtype, shape = facts
                return np.frombuffer(part, np.dtype(dtype)).reshape(shape)
            return _torch_tensors().view(facts, part)

        return _Unpickler(io.BytesIO(self._description["state"]), value).load()

    def _value(self, number: int) -> object:
        """Return a tensor or an array, filled from its region."""
        kind, region, facts = self._description["entries"][number]
        if kind == "array":
            dtype, shape = facts
            array = np.empty(shape, np.dtype(dtype))
            if array.nbytes:
                self._fill(region, memoryview(array.data).cast("B"))
            return array
        value, memory = _torch_tensors().empty(facts)
        self._fill(region, memory)
        return value

    def _fill(self, region: int, target: memoryview | None) -> None:
        if target is not None and target.nbytes:
            self._slot.read_into(self._offsets[region], target)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # untyped
    """Collects tensors and arrays instead of pickling them."""

    def __init__(self, file: io.BytesIO, *, has_shards: bool) -> None:
        super().__init__(file, 5)
        self._has_shards = has_shards
        self.entries: list[tuple[str, int, object]] = []
        self.regions: list[Region] = []
        self._known: dict[object, int] = {}
        self._copied: set[int] = set()  # regions that are copied from a device in the background
        self._torch = _torch_tensors() if "torch" in sys.modules else None
        if self._torch is not None:
            self._torch.host_copies.begin()

    @property
    def wait(self) -> Callable[[], None] | None:
        """`Capture.wait`."""
        return self._torch.host_copies.wait if self._torch is not None and self._copied else None

    def settled(self) -> list[Region]:
        """Return the regions. If some are written in the background, the program may change the
        others before they are written, so those are copied now.
        """
        if not self._copied:
            return self.regions
        return [
            region if number in self._copied else _duplicate(region)
            for number, region in enumerate(self.regions)
        ]

    def persistent_id(self, value: object) -> int | None:
        if self._torch is not None and self._torch.is_tensor(value):
            if not self._has_shards and self._torch.is_sharded(value):
                raise TypeError(
                    "only automatic snapshots (`RunConfig(snapshot=SnapshotConfig())` with "
                    "`prepare_model`) restore sharded tensors"
                )
            region, facts, is_copied = self._torch.describe(value)
            number = self._add("tensor", region, facts)
            if is_copied:
                self._copied.add(number)
            return number
        if type(value) is np.ndarray and not value.dtype.hasobject:
            array = np.ascontiguousarray(value).reshape(value.shape)
            region = Region(address=array.ctypes.data, nbytes=array.nbytes, owner=array)
            return self._add("array", region, (array.dtype.str, array.shape))
        return None

    def _add(self, kind: str, region: Region, facts: object) -> int:
        """Return the number of a value; tied weights have one region, and are tied again."""
        key = (kind, region.address, region.nbytes, facts)
        number = self._known.get(key)
        if number is None or not region.nbytes:
            number = len(self.entries)
            self.entries.append((kind, len(self.regions), facts))
            self.regions.append(region)
            self._known[key] = number
        return number


class _Unpickler(pickle.Unpickler):
    """Inserts tensors and arrays, each one once."""

    def __init__(self, file: io.BytesIO, value: Callable[[int], object]) -> None:
        super().__init__(file)
        self._value = value
        self._loaded: dict[int, object] = {}

    def persistent_load(self, position: object) -> object:
        number = cast(int, position)
        if number not in self._loaded:
            self._loaded[number] = self._value(number)
        return self._loaded[number]


def _duplicate(region: Region) -> Region:
    if not region.nbytes:
        return region
    copied = np.empty(region.nbytes, np.uint8)
    ctypes.memmove(copied.ctypes.data, region.address, region.nbytes)
    return Region(address=copied.ctypes.data, nbytes=region.nbytes, owner=copied)


def _uncapturable(state: object, error: Exception, has_shards: bool) -> TypeError:
    """Return the error for a state that cannot be pickled."""

    def check(value: object) -> Exception | None:
        try:
            _Pickler(io.BytesIO(), has_shards=has_shards).dump(value)
        except Exception as found:
            return found
        return None

    part = find_unpicklable(state, "state", error, check)
    return TypeError(
        f"A snapshot cannot capture `{part.path}`, a {part.type_name}: {part.reason}. Leave it out "
        "of the state and create it again after a restart, or give it `state_dict()` and "
        "`load_state_dict(state)` that return and accept plain values."
    )


def _torch_tensors() -> ModuleType:
    from syncline.train.snapshots import torch_tensors  # loads torch: only for programs with it

    return torch_tensors
