"""The object store: segments are reused, bounded, fall back to disk, and stay mapped."""

import gc
import os
import pickle
import shutil
import stat
import subprocess
import tempfile
import threading
from pathlib import Path

import pytest

from syncline.core import serialization
from syncline.core.embedded import segments
from syncline.core.embedded.messages import INLINE_LIMIT_BYTES
from syncline.core.embedded.object_store import SMALLEST_SEGMENT_BYTES as SMALLEST
from syncline.core.embedded.object_store import Store, segment_capacity
from syncline.core.embedded.segments import Layout, Segment, layout_nbytes, read, write
from syncline.core.serialization import Packed
from syncline.exceptions import ObjectStoreFullError, OutOfDiskError

MB = 1_000_000
SHARED_MEMORY = Path("/dev/shm")


@pytest.fixture
def shared_directory():
    """A directory in shared memory, of this test alone."""
    parent = Path(
        tempfile.mkdtemp(
            prefix="syncline-test-",
            dir=SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None,
        )
    )
    yield parent / "session"
    shutil.rmtree(parent, ignore_errors=True)


@pytest.fixture
def make_store(shared_directory, tmp_path):
    stores = []

    def make(limit_bytes=64 * MB, directory=shared_directory, disk_directory=tmp_path / "disk"):
        stores.append(
            Store(directory=directory, disk_directory=disk_directory, limit_bytes=limit_bytes)
        )
        return stores[-1]

    yield make
    for store in stores:
        store.close()


@pytest.fixture
def small_tmpfs(tmp_path):
    """Mounts file systems of a given size, as a container with `--shm-size` has; needs root."""
    mounted = []

    def mount(name, nbytes):
        point = tmp_path / name
        point.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={nbytes}", "tmpfs", str(point)],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            pytest.skip(f"mounting needs root: {done.stderr.strip()}")
        mounted.append(point)
        return point

    yield mount
    for point in mounted:
        subprocess.run(["umount", "-l", str(point)], check=False)


def pack_bytes(nbytes, fill=b"x"):
    return serialization.pack(fill * nbytes)


def put(store, value):
    packed = serialization.pack(value)
    return write(store.create(layout_nbytes(packed)), packed)


def get(layout, on_release=None):
    mapped = read(layout, on_release)
    return serialization.unpack(mapped.data, mapped.buffers)


# Segments


@pytest.mark.parametrize(
    "nbytes", [1, SMALLEST, SMALLEST + 1, MB, 5 * MB // 3, 2**20, 2**20 + 1, 3 * 2**29, 10**11]
)
def test_capacity_wastes_at_most_a_quarter(nbytes):
    capacity = segment_capacity(nbytes)
    assert capacity >= nbytes
    assert capacity <= max(SMALLEST, nbytes * 1.25)
    assert segment_capacity(capacity) == capacity
    assert capacity % 4096 == 0


def test_a_segment_is_a_private_file_of_the_promised_size(make_store, shared_directory):
    segment = make_store().create(MB)
    status = os.stat(segment.name)
    assert status.st_size == segment.capacity >= MB
    assert status.st_blocks * 512 >= segment.capacity
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert stat.S_IMODE(os.stat(shared_directory).st_mode) == 0o700
    assert pickle.loads(pickle.dumps(segment)) == segment
    assert len(pickle.dumps(segment)) < 300


def test_released_segments_are_reused_but_their_names_are_not(make_store):
    store = make_store()
    first, second = store.create(MB), store.create(MB)
    assert first.name != second.name
    store.release(first)
    assert store.create(MB - 1000) == first
    store.release(first)
    small = store.create(200_000)
    assert small.name not in (first.name, second.name)
    statistics = store.statistics()
    assert (statistics.created, statistics.reused, statistics.spilled) == (3, 1, 0)
    assert statistics.in_use_bytes == second.capacity + small.capacity
    assert statistics.pooled_bytes == first.capacity


def test_a_slightly_larger_segment_is_reused_but_not_a_much_larger_one(make_store):
    store = make_store()
    segment = store.create(2**20 + 1)
    store.release(segment)
    assert store.create(2**20) == segment
    store.release(segment)
    assert store.create(2**19) != segment


def test_releasing_twice_gives_the_segment_back_once(make_store):
    store = make_store()
    segment = store.create(MB)
    store.release(segment)
    store.release(segment)
    assert store.statistics().pooled_segments == 1
    assert store.create(MB) != store.create(MB)


def test_the_pool_holds_at_most_half_of_the_limit(make_store):
    store = make_store(limit_bytes=16 * 2**20)
    held = [store.create(2**20) for _ in range(16)]
    for segment in held:
        store.release(segment)
    statistics = store.statistics()
    assert (statistics.in_use_bytes, statistics.pooled_bytes) == (0, 8 * 2**20)
    assert sum(os.path.exists(segment.name) for segment in held) == 8


def test_the_pool_makes_room_for_objects_of_other_sizes(make_store):
    store = make_store(limit_bytes=16 * 2**20)
    pooled = [store.create(2**20) for _ in range(8)]
    for segment in pooled:
        store.release(segment)
    large = store.create(12 * 2**20)
    assert not large.on_disk
    statistics = store.statistics()
    assert statistics.in_use_bytes + statistics.pooled_bytes == 16 * 2**20


def test_objects_beyond_the_limit_go_to_disk_and_stay_readable(make_store, tmp_path):
    store = make_store(limit_bytes=4 * 2**20)
    layouts = [put(store, bytes([i]) * 2**20) for i in range(8)]
    assert [layout.segment.on_disk for layout in layouts].count(True) >= 4
    assert [get(layout) for layout in layouts] == [bytes([i]) * 2**20 for i in range(8)]
    assert store.statistics().disk_bytes >= 4 * 2**20
    assert store.statistics().in_use_bytes <= 4 * 2**20
    for layout in layouts:
        store.release(layout.segment)
    assert store.statistics().disk_bytes == 0
    assert list((tmp_path / "disk").iterdir()) == []


def test_without_a_disk_a_full_store_is_an_error_with_numbers(make_store):
    store = make_store(limit_bytes=2 * MB, disk_directory=None)
    store.create(MB)
    with pytest.raises(
        ObjectStoreFullError, match=r"1\.5 MB.* 1\.0 MB of 2\.0 MB.*object_store_memory"
    ):
        store.create(1_500_000)
    assert store.statistics().in_use_segments == 1


def test_a_small_shared_memory_falls_back_to_disk(make_store, small_tmpfs):
    shared = small_tmpfs("shm", 64 * 2**20)
    store = make_store(limit_bytes=1000 * MB, directory=shared / "session")
    layouts = [put(store, bytes([i]) * 10 * MB) for i in range(10)]
    assert {layout.segment.on_disk for layout in layouts} == {True, False}
    assert [get(layout)[0] for layout in layouts] == list(range(10))
    assert [get(layout)[-1] for layout in layouts] == list(range(10))
    for layout in layouts:
        store.release(layout.segment)
    assert not put(store, b"x" * 40 * MB).segment.on_disk  # the pool gave way


def test_a_full_disk_is_an_error_with_numbers_and_loses_nothing(make_store, small_tmpfs):
    shared, disk = small_tmpfs("shm", 8 * 2**20), small_tmpfs("disk", 8 * 2**20)
    store = make_store(
        limit_bytes=1000 * MB, directory=shared / "session", disk_directory=disk / "session"
    )
    layouts = [put(store, bytes([i]) * 3 * 2**20) for i in range(4)]
    before = store.statistics()
    with pytest.raises(OutOfDiskError, match=r"5\.0 MB fits neither.*MB free.*drop references"):
        store.create(5 * MB)
    assert store.statistics() == before
    assert [get(layout)[0] for layout in layouts] == [0, 1, 2, 3]
    assert sorted(os.listdir(disk / "session")) == sorted(
        Path(x.segment.name).name for x in layouts if x.segment.on_disk
    )


def test_close_removes_all_files_and_leaves_views_readable(make_store, shared_directory, tmp_path):
    store = make_store(limit_bytes=2 * MB)
    mapped = read(put(store, b"a" * MB))
    on_disk = read(put(store, b"b" * 3 * MB))
    store.release(store.create(200_000))
    store.close()
    assert not shared_directory.exists()
    assert not (tmp_path / "disk").exists()
    assert bytes(mapped.buffers[0]) == b"a" * MB
    assert bytes(on_disk.buffers[0]) == b"b" * 3 * MB
    store.close()
    assert store.statistics().in_use_bytes == 0


# Writing and reading


def test_buffers_are_aligned_and_come_back(make_store):
    buffers = [memoryview(os.urandom(n)) for n in (5000, 1, 0, 64, 100_001)]
    packed = Packed(os.urandom(333), buffers, ())
    store = make_store()
    layout = write(store.create(layout_nbytes(packed)), packed)
    assert all(offset % 64 == 0 for offset, _ in layout.buffers)
    assert layout.nbytes == layout_nbytes(packed) <= layout.segment.capacity
    mapped = read(pickle.loads(pickle.dumps(layout)))
    assert mapped.data == packed.data
    assert mapped.buffers == buffers
    assert all(view.readonly and view.format == "B" for view in [mapped.data, *mapped.buffers])


def test_a_value_without_buffers_is_read_from_the_stream_alone(make_store):
    assert get(put(make_store(), list(range(100_000)))) == list(range(100_000))


@pytest.mark.parametrize("times", [1, 2, 3, 5])
def test_a_segment_written_again_holds_the_new_value(make_store, times):
    store = make_store()
    for i in range(times):
        layout = put(store, bytes([i]) * (9 * MB - i))  # more than one piece of a copy
        assert get(layout) == bytes([i]) * (9 * MB - i)
        store.release(layout.segment)
    assert store.statistics().created == 1


def test_write_mappings_are_bounded(make_store, monkeypatch):
    monkeypatch.setattr(segments, "_process", segments._Process())
    monkeypatch.setattr(segments, "MAX_WRITE_MAPPINGS", 2)
    monkeypatch.setattr(segments, "MAX_KNOWN_NAMES", 4)
    store = make_store()
    packed = [pack_bytes(MB, bytes([i])) for i in range(6)]
    held = [store.create(layout_nbytes(p)) for p in packed]
    for _ in range(3):
        for segment, p in zip(held[:4], packed[:4], strict=True):
            assert get(write(segment, p)) == serialization.unpack(p.data, p.buffers)
    assert len(segments._process.writable) == 2
    for segment, p in zip(held, packed, strict=True):
        write(segment, p)
    assert len(segments._process.written) == 4


def test_segments_removed_from_the_pool_free_their_memory(make_store):
    store = make_store(limit_bytes=8 * 2**20)
    packed = pack_bytes(3 * 2**20)
    segment = store.create(layout_nbytes(packed))
    write(segment, packed)
    write(segment, packed)  # now this process keeps a mapping
    fd = os.open(segment.name, os.O_RDONLY)
    store.release(segment)
    store.create(7 * 2**20)
    assert os.fstat(fd).st_nlink == 0
    assert os.fstat(fd).st_blocks == 0
    os.close(fd)


def test_many_threads_write_and_read_concurrently(make_store):
    store = make_store()
    lock = threading.Lock()
    wrong = []

    def work(fill):
        for _ in range(20):
            packed = pack_bytes(INLINE_LIMIT_BYTES * 3, fill)
            with lock:
                segment = store.create(layout_nbytes(packed))
            value = get(write(segment, packed))
            if value != fill * (INLINE_LIMIT_BYTES * 3):
                wrong.append(fill)
            with lock:
                store.release(segment)

    threads = [threading.Thread(target=work, args=(bytes([i]),)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []
    assert store.statistics().in_use_segments == 0


def test_on_release_is_called_once_after_the_last_view(make_store):
    released = []
    layout = put(make_store(), bytearray(MB))
    mapped = read(layout, lambda: released.append(layout))
    part = mapped.buffers[0][100:200]
    before = len(segments._process.leases)
    del mapped
    gc.collect()
    assert released == []
    again = memoryview(part)
    del part
    gc.collect()
    assert released == []
    del again
    gc.collect()
    assert released == [layout]
    assert len(segments._process.leases) == before - 1


def test_arrays_alias_the_mapping_are_read_only_and_keep_it(make_store):
    np = pytest.importorskip("numpy")
    released = []
    value = {"x": np.arange(MB), "y": np.ones(MB, dtype=np.float32)}
    store = make_store()
    back = get(put(store, value), lambda: released.append(1))
    np.testing.assert_array_equal(back["x"], value["x"])
    assert not back["x"].flags.writeable
    assert back["x"].ctypes.data % 64 == 0
    row = back["y"][5:6]
    del back
    gc.collect()
    assert released == []
    del row
    gc.collect()
    assert released == [1]


def test_a_value_without_views_is_released_immediately(make_store):
    released = []
    value = get(put(make_store(), b"x" * MB), lambda: released.append(1))
    gc.collect()
    assert len(value) == MB
    assert released == [1]


@pytest.mark.filterwarnings("error")
def test_writing_to_a_received_tensor_changes_no_other_copy(make_store):
    torch = pytest.importorskip("torch")
    layout = put(make_store(), torch.zeros(MB))
    mine, other = get(layout), get(layout)
    mine.fill_(1)
    assert mine.sum() == MB
    assert other.sum() == 0
    assert get(layout).sum() == 0


def test_more_objects_can_be_mapped_than_files_may_be_open(make_store):
    layout = put(make_store(), bytearray(MB))
    before = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else None
    held = [read(layout) for _ in range(2000)]
    assert before is None or len(os.listdir("/proc/self/fd")) <= before + 10
    assert all(mapped.buffers[0].nbytes == MB for mapped in held)


def test_reading_a_removed_segment_raises_and_releases_nothing(tmp_path):
    released = []
    with pytest.raises(FileNotFoundError):
        read(
            Layout(Segment(str(tmp_path / "gone"), 4096, False), 10, ()), lambda: released.append(1)
        )
    assert released == []


# Forks


def in_child(work):
    """Run `work` in a forked child; its exit code is 0 if `work` returned true."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if work() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_releases_nothing_of_its_parent(make_store, shared_directory):
    store = make_store()
    released_read, released_write = os.pipe()
    os.set_blocking(released_read, False)
    layout = put(store, b"a" * MB)
    holder = [read(layout, lambda: os.write(released_write, b"r"))]

    def child():
        readable = bytes(holder[0].buffers[0]) == b"a" * MB
        holder.clear()
        gc.collect()
        store.release(layout.segment)
        store.close()
        return readable

    assert in_child(child) == 0
    with pytest.raises(BlockingIOError):
        os.read(released_read, 1)
    assert Path(layout.segment.name).exists()
    assert bytes(holder[0].buffers[0]) == b"a" * MB
    os.close(released_read)
    os.close(released_write)


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_segments_that_a_forked_child_may_read_are_not_released(make_store):
    released = []
    layout = put(make_store(), b"a" * MB)
    held = read(layout, lambda: released.append("before the fork"))
    assert in_child(lambda: True) == 0
    later = read(layout, lambda: released.append("after the fork"))
    del held, later
    gc.collect()
    assert released == ["after the fork"]


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_can_write_and_read(make_store):
    store = make_store()
    packed = pack_bytes(MB, b"c")
    segment = store.create(layout_nbytes(packed))
    write(segment, packed)
    write(segment, packed)

    def child():
        released = []
        assert not segments._process.writable
        value = get(write(segment, pack_bytes(MB, b"d")), lambda: released.append(1))
        gc.collect()
        return value == b"d" * MB and released == [1]

    assert in_child(child) == 0
    assert (
        get(Layout(segment, len(packed.data), write(segment, pack_bytes(MB, b"d")).buffers))
        == b"d" * MB
    )
