"""Files of snapshots: a write is read back, and an interrupted write leaves the other slot."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from syncline import faults
from syncline.train.snapshots.slot import Region, SnapshotHeader, SnapshotSlot, region_offsets


def header(step: int = 1) -> SnapshotHeader:
    return SnapshotHeader(
        rank=1,
        world_size=2,
        step=step,
        next_report=7,
        taken_at=12.5,
        versions={"syncline": "0.1.0", "training function": "abc"},
    )


def regions(arrays: Sequence[np.ndarray]) -> list[Region]:
    return [Region(address=each.ctypes.data, nbytes=each.nbytes, owner=each) for each in arrays]


def read(slot: SnapshotSlot, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    found = []
    for offset, array in zip(region_offsets([a.nbytes for a in arrays]), arrays, strict=True):
        target = np.zeros_like(array)
        if target.nbytes:
            slot.read_into(offset, memoryview(target.data).cast("B"))
        found.append(target)
    return found


ARRAYS: list[np.ndarray] = [
    np.arange(1000, dtype=np.float32),
    np.zeros(0, np.int64),
    np.full((3, 5), 9, np.uint8),
    np.arange(70_000),
]


def test_the_first_and_later_writes_are_read_by_another_process_as_they_were_written(
    tmp_path: Path,
) -> None:
    slot = SnapshotSlot(tmp_path / "slot")
    for step in range(1, 5):  # with `pwritev`, then mapped
        arrays = [(array + step).astype(array.dtype) for array in ARRAYS]
        slot.write(header(step), regions(arrays), b"d" * step)
        other = SnapshotSlot(tmp_path / "slot")
        assert other.header() == header(step)
        assert other.description() == b"d" * step
        for expected, found in zip(arrays, read(other, arrays), strict=True):
            np.testing.assert_array_equal(expected, found)


def test_a_snapshot_that_grows_or_shrinks_is_complete(tmp_path: Path) -> None:
    slot = SnapshotSlot(tmp_path / "slot")
    for size in (10, 200_000, 5, 300_000, 300_001):
        array = np.full(size, size % 251, np.uint8)
        slot.write(header(), regions([array]), b"x" * (size // 2))
        assert slot.description() == b"x" * (size // 2)
        np.testing.assert_array_equal(read(slot, [array])[0], array)


@pytest.mark.parametrize("point", ["snapshot.copying", "snapshot.copied"])
@pytest.mark.parametrize("earlier", [0, 1, 2])
def test_an_interrupted_write_is_no_snapshot(tmp_path: Path, point: str, earlier: int) -> None:
    slot = SnapshotSlot(tmp_path / "slot")
    for step in range(earlier):
        slot.write(header(step), regions(ARRAYS), b"whole")
    faults.configure(f"{point}=raise:1")
    try:
        with pytest.raises(faults.FaultInjected):
            slot.write(header(9), regions(ARRAYS), b"part")
    finally:
        faults.configure("")
    assert SnapshotSlot(tmp_path / "slot").header() is None
    slot.write(header(10), regions(ARRAYS), b"next")
    assert SnapshotSlot(tmp_path / "slot").header() == header(10)


def test_missing_empty_foreign_and_invalidated_files_are_no_snapshots(tmp_path: Path) -> None:
    slot = SnapshotSlot(tmp_path / "slot")
    assert slot.header() is None
    slot.invalidate()
    for data in (b"", b"x" * 10_000):
        slot.path.write_bytes(data)
        assert SnapshotSlot(slot.path).header() is None
    slot = SnapshotSlot(tmp_path / "other")
    slot.write(header(), [], b"")
    slot.invalidate()
    assert slot.header() is None


def test_the_file_of_another_version_is_told_by_its_format(tmp_path: Path) -> None:
    slot = SnapshotSlot(tmp_path / "slot")
    slot.write(header(), regions(ARRAYS), b"")
    with (tmp_path / "slot").open("r+b") as file:
        file.seek(8)  # after the magic bytes
        file.write((1).to_bytes(4, "little"))
    found = slot.header()
    assert found is not None
    assert (found.format, found.rank, found.world_size) == (1, 1, 2)


def test_a_changed_description_is_an_error(tmp_path: Path) -> None:
    slot = SnapshotSlot(tmp_path / "slot")
    slot.write(header(), [], b"description")
    data = slot.path.read_bytes()
    slot.path.write_bytes(data.replace(b"description", b"descriptiom"))
    with pytest.raises(ValueError, match="is damaged: its checksum is wrong"):
        SnapshotSlot(slot.path).description()


def test_a_full_file_system_raises_and_leaves_no_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot = SnapshotSlot(tmp_path / "slot")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwritev", full)
    with pytest.raises(OSError, match="No space left"):
        slot.write(header(), regions(ARRAYS), b"d")
    assert slot.header() is None


def test_files_are_private(tmp_path: Path) -> None:
    slot = SnapshotSlot(tmp_path / "slot")
    slot.write(header(), [], b"")
    assert slot.path.stat().st_mode & 0o777 == 0o600
