"""Programs with datasets that are killed, interrupted or short of room: nothing is left, and
nothing half-done is visible.
"""

import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from syncline.testing import run_program
from tests.core.embedded.reliability import PRELUDE, assert_all_gone

pytestmark = pytest.mark.processes

DATA = (
    PRELUDE
    + """
import gc, pathlib, shutil
from syncline import data


def large(blocks, rows=128):  # 8 KB in a row
    return data.range(blocks * rows, override_num_blocks=blocks).map_batches(
        lambda batch: {
            "id": batch["id"],
            "x": np.full((len(batch["id"]), 1023), 1.0) * batch["id"][:, None],
        }
    )


def store():
    return statistics()["store"]


def until_all_is_let_go():
    gc.collect()
    until(lambda: not store().in_use_bytes and not store().disk_bytes, "the object store is empty")

"""
)

KILLED = """
syncline.init(num_cpus=2, object_store_memory=16 << 20)
way = sys.argv[1]
if way == "iterating":
    loop = iter(large(200).iter_batches(batch_size=10))
    next(loop)
elif way == "materialized":
    kept = large(60).materialize()
    assert store().disk_bytes
elif way == "sorting":
    loop = iter(large(60).sort("id", descending=True).iter_batches(batch_size=10))
    assert next(loop)["id"][0] == 60 * 128 - 1 and store().spilled, store()
elif way == "split":
    (iterator,) = large(200).streaming_split(1)
    loop = iter(iterator.iter_batches(batch_size=10))
    next(loop)
print("in the middle")
if len(sys.argv) == 2:
    time.sleep(LIMIT_S)
"""


@pytest.mark.parametrize("way", ["iterating", "materialized", "sorting", "split"])
def test_a_program_that_is_killed_leaves_nothing(way: str) -> None:
    with run_program(DATA + KILLED, way) as program:
        program.wait_for("in the middle")
        program.send_signal(signal.SIGKILL)
        program.wait()
        assert_all_gone(program)


@pytest.mark.parametrize("way", ["iterating", "sorting", "split"])
def test_a_program_may_end_in_the_middle(way: str) -> None:
    with run_program(DATA + KILLED, way, "end") as program:
        assert program.wait().check().stderr == ""
        assert_all_gone(program)


INTERRUPTED = """
# A shell that runs the tests in the background ignores the signal.
signal.signal(signal.SIGINT, signal.default_int_handler)
syncline.init(num_cpus=2)


def works(batch):
    pathlib.Path("works").touch()
    time.sleep(LIMIT_S)
    return batch


def tell():
    until(lambda: os.path.exists("works"), "the function works")
    print("in the middle")


threading.Thread(target=tell, daemon=True).start()
dataset = data.range(1000, override_num_blocks=8).map_batches(works)
way = sys.argv[1]
if way == "iterating":
    for batch in dataset.iter_batches():
        pass
elif way == "materializing":
    dataset.materialize()
elif way == "writing":
    dataset.write_parquet(os.path.abspath("out"))
elif way == "split":
    (iterator,) = dataset.streaming_split(1)
    for batch in iterator.iter_batches():
        pass
"""


@pytest.mark.parametrize("way", ["iterating", "materializing", "writing", "split"])
def test_ctrl_c_ends_a_program_with_one_short_traceback(way: str) -> None:
    with run_program(DATA + INTERRUPTED, way) as program:
        program.wait_for("in the middle")
        program.signal_group(signal.SIGINT)
        ended = program.wait()
        assert ended.return_code == -signal.SIGINT
        assert ended.stderr.startswith("Traceback (most recent call last):")
        assert ended.stderr.rstrip().endswith("KeyboardInterrupt")
        assert len(ended.stderr.splitlines()) <= 6, ended.stderr
        assert_all_gone(program)
        assert {path.name for path in program.directory.iterdir()} == {"program.py", "works", "tmp"}


SMALL_DISK = """
if "inside" not in sys.argv:
    os.mkdir("small")
    mount = 'mount -t tmpfs -o size=24m tmpfs small && exec "$0" "$@"'
    again = [sys.executable, *sys.orig_argv[1:], "inside"]
    os.execvp("unshare", ["unshare", "-m", "sh", "-c", mount, *again])
small = pathlib.Path("small").absolute()
"""

FULL_WHILE_SPILLING = """
os.environ["SYNCLINE_TMPDIR"] = str(small)
syncline.init(num_cpus=2, object_store_memory=16 << 20)
for operation in (
    lambda: large(60).materialize(),
    lambda: large(60).sort("id", descending=True).materialize(),
):
    try:
        operation()
    except exceptions.OutOfDiskError as error:
        for text in ("MapBatches(<lambda>), task", str(small), "free disk space"):
            assert text in str(error), error
    else:
        raise AssertionError("60 MB do not fit")
    until_all_is_let_go()
assert large(20).sort("id", descending=True).take(1)[0]["id"] == 20 * 128 - 1
syncline.shutdown()
print("done")
"""

FULL_WHILE_WRITING = """
syncline.init(num_cpus=2)
out = small / "out"


def write(number):  # random numbers cannot be made smaller
    noise = large(number).map_batches(lambda batch: {"x": np.random.rand(*batch["x"].shape)})
    noise.write_parquet(str(out))


for _ in range(2):
    try:
        write(60)
    except OSError as error:
        assert error.errno == 28, error
        for text in (f"the disk of {out} is full", "Free some space"):
            assert text in str(error), error
    else:
        raise AssertionError("60 MB do not fit")
    assert not out.exists()
(left,) = small.iterdir()
shutil.rmtree(left)  # as the error says
write(5)
assert data.read_parquet(str(out)).count() == 5 * 128
assert [path.name for path in small.iterdir()] == ["out"]
print("done")
"""


def _may_mount(directory: Path) -> bool:
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "-m", "mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(directory)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    "text", [FULL_WHILE_SPILLING, FULL_WHILE_WRITING], ids=["spilling", "writing"]
)
def test_a_full_disk_is_a_clear_error_and_the_next_execution_works(
    text: str, tmp_path: Path
) -> None:
    if not _may_mount(tmp_path):
        pytest.skip("needs the right to mount a small disk of its own")
    with run_program(DATA + SMALL_DISK + text) as program:
        assert "done" in program.wait().check().stdout
        assert_all_gone(program)


LARGER_THAN_MEMORY = """
syncline.init(num_cpus=2, object_store_memory=16 << 20)
blocks, rows = 64, 64 * 128  # 64 MB
all_rows = sum(range(rows))


def check(batches, total=all_rows):
    ids = []
    for batch in batches:
        assert (batch["x"][:, 7] == batch["id"]).all()
        ids.extend(batch["id"].tolist())
    assert len(ids) == rows and sum(ids) == total
    return ids


descending = large(blocks).sort("id", descending=True)
assert check(descending.iter_batches(batch_size=None)) == list(range(rows))[::-1]
shuffled = check(large(blocks).random_shuffle(seed=1).iter_batches(batch_size=None))
assert shuffled != sorted(shuffled)
groups = large(blocks).map_batches(lambda batch: {**batch, "key": batch["id"] % 10}).groupby("key")
found = groups.map_groups(
    lambda group: {
        "key": group["key"][:1],
        "sum": [group["id"].sum()],
        "x": [group["x"][:, 7].sum()],
    }
).take_all()
assert sorted(row["key"] for row in found) == list(range(10))
assert sum(row["sum"] for row in found) == sum(row["x"] for row in found) == all_rows
other = data.range(rows, override_num_blocks=8).map_batches(
    lambda batch: {"id": batch["id"], "double": 2 * batch["id"]}
)
joined = large(blocks).join(other, join_type="inner", num_partitions=8, on=("id",))
check(joined.iter_batches(batch_size=None))
assert joined.sum("double") == 2 * all_rows
assert store().spilled
until_all_is_let_go()
print("done")
"""


def test_operations_on_more_than_the_object_store_holds_are_right() -> None:
    with run_program(DATA + LARGER_THAN_MEMORY) as program:
        assert "done" in program.wait().check().stdout
        assert_all_gone(program)
