"""Data programs: timed passes; programs of syncline, DataLoader and pyarrow run on a few rows."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bench.inputs import SAMPLE, SCALE, write_numbers, write_photos
from bench.programs.data.pipelines import timed, two_epochs
from bench.programs.data.tables import KEYS, keys_in, make, measure
from tests.bench.program_runs import keys_of, run

IMAGES = 300


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few images."""
    folder = tmp_path_factory.mktemp("images")
    (file,) = (SAMPLE / "test").glob("*.parquet")
    pq.write_table(pq.read_table(file).slice(0, IMAGES), folder / file.name)
    return folder


def test_pass_counts_rows_and_times_the_first_batch() -> None:
    done = timed(lambda: ({"a": [0] * rows} for rows in (3, 2)), "a")
    assert done.rows == 5
    assert 0 <= done.first_s <= done.total_s


def test_pipeline_without_rows_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="produced no batch"):
        timed(list, "a")


def test_both_epochs_must_have_equally_many_rows() -> None:
    sizes = iter((3, 2))
    with pytest.raises(AssertionError, match="3 rows in the first epoch, 2 in the second"):
        two_epochs(lambda: [{"a": [0] * next(sizes)}], "a")


def test_result_with_too_few_rows_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SCALE, "0.001")
    with pytest.raises(AssertionError, match="0 rows instead of"):
        measure(group=lambda frame: 0, sort=len, load=lambda parts: parts)


def test_random_tables_have_all_rows_and_nearly_all_keys() -> None:
    parts = make(100_000)
    assert sum(part.num_rows for part in parts) == 100_000
    assert KEYS * 0.99 < keys_in(parts) <= KEYS


@pytest.mark.long
@pytest.mark.processes
@pytest.mark.parametrize(
    ("module", "argument"), [("data.images", "syncline-python"), ("data.image_loader", "native")]
)
def test_programs_with_images(module: str, argument: str, images: Path, tmp_path: Path) -> None:
    values = run(module, argument, tmp_path, images)
    assert keys_of("data.images") | {"first_batch_at"} <= values.keys()
    assert values["rows"] == IMAGES


@pytest.mark.long
@pytest.mark.processes
@pytest.mark.parametrize(
    ("module", "argument"), [("data.scan", "syncline"), ("data.scan_peers", "pyarrow")]
)
def test_scans(module: str, argument: str, tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    write_numbers(files, 10_000)
    values = run(module, argument, tmp_path, files)
    assert keys_of("data.scan") <= values.keys()
    assert 0.2 < values["rows"] / 10_000 < 0.3


@pytest.mark.processes
@pytest.mark.parametrize(
    ("module", "argument"),
    [
        ("data.tables", "syncline"),
        ("data.table_peers", "pandas"),
        ("data.shuffle", "syncline"),
        ("data.stream", "syncline"),
    ],
)
def test_programs_without_input_files(module: str, argument: str, tmp_path: Path) -> None:
    expected = "data.tables" if module == "data.table_peers" else module
    assert keys_of(expected) <= run(module, argument, tmp_path).keys()


@pytest.mark.long
@pytest.mark.processes
def test_photos_and_photos_from_an_object_store(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    write_photos(files, SAMPLE / "test", 16)
    assert keys_of("data.photos") <= run("data.photos", "loader", tmp_path, files).keys()
    values = run("data.remote_photos", "syncline-parquet", tmp_path, files)
    assert keys_of("data.remote_photos") <= values.keys()


@pytest.mark.long
@pytest.mark.processes
def test_training_relative_to_one_batch(images: Path, tmp_path: Path) -> None:
    values = run("data.fed_training", "fast", tmp_path, images, scale="0.04")
    assert keys_of("data.fed_training") <= values.keys()


@pytest.mark.long
@pytest.mark.processes
def test_local_shuffle(images: Path, tmp_path: Path) -> None:
    assert (
        keys_of("data.local_shuffle")
        <= run("data.local_shuffle", "syncline", tmp_path, images).keys()
    )


@pytest.mark.long
@pytest.mark.processes
def test_training_on_images(images: Path, tmp_path: Path) -> None:
    values = run("data.feed", "syncline", tmp_path, images, scale="0.004")
    assert keys_of("data.feed") <= values.keys()
    assert 0 <= values["wait_share"] <= 1
