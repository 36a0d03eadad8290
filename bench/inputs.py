"""The files that programs read: made once per run, in a temporary folder, before the first program
that needs them starts.

Sizes are those of `SIZES` times the variable BENCH_SCALE. Images come from the folder `train` in
the one that BENCH_CIFAR10 names, or from the sample in `examples/data`.
"""

import os
import tempfile
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from types import TracebackType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.rows import Input

INPUT = "BENCH_INPUT"
"""The variable in which a program finds the folder of its row's input."""
CIFAR10 = "BENCH_CIFAR10"
SCALE = "BENCH_SCALE"
SAMPLE = Path(__file__).resolve().parent.parent / "examples/data/cifar10"

IMAGES = 50_000
SCAN_ROWS = 10_000_000
SCAN_FILES = 8
SCAN_ROW_GROUP = 128 * 1024
FEATURES = 24
GROUPS = 100
PARTS_ROWS = 1_000_000
PARTS_FILES = 200
PARTS_FEATURES = 8


def scaled(rows: int, environment: Mapping[str, str] = os.environ) -> int:
    """So many rows times BENCH_SCALE."""
    return max(1, int(rows * float(environment.get(SCALE) or 1)))


def link_images(folder: Path, source: Path, rows: int) -> None:
    """Links to the Parquet files of `source`, again and again until they have at least so many
    rows.

    FileNotFoundError where `source` has none.
    """
    files = sorted(source.resolve().glob("*.parquet"))
    if not files:
        raise FileNotFoundError(
            f"there is no *.parquet in {source}: set {CIFAR10} to a folder that has them in its folder `train`"
        )
    sizes = [pq.read_metadata(file).num_rows for file in files]
    linked = 0
    for number in count():
        if linked >= rows:
            return
        place = number % len(files)
        (folder / f"part-{number:03}.parquet").symlink_to(files[place])
        linked += sizes[place]


def write_numbers(
    folder: Path, rows: int, *, files: int = SCAN_FILES, features: int = FEATURES
) -> None:
    """Random numbers in so many files: `id`, `group` (0 to 99), and features of 4 bytes, 108 bytes
    a row if there are 24 of them.
    """
    random = np.random.default_rng(0)
    each = -(-rows // files)
    for number in range(files):
        own = min(each, rows - number * each)
        if own <= 0:
            return
        columns: dict[str, pa.Array] = {
            "id": pa.array(np.arange(own) + number * each),
            "group": pa.array(random.integers(0, GROUPS, own, dtype=np.int32)),
            **{
                f"f{place:02}": pa.array(random.standard_normal(own, dtype=np.float32))
                for place in range(features)
            },
        }
        # Without dictionaries: random numbers hardly repeat.
        pq.write_table(
            pa.table(columns),
            folder / f"part-{number:03}.parquet",
            row_group_size=SCAN_ROW_GROUP,
            use_dictionary=["group"],
        )


def _images(folder: Path) -> None:
    link_images(folder, Path(os.environ.get(CIFAR10) or SAMPLE) / "train", scaled(IMAGES))


def _scan(folder: Path) -> None:
    write_numbers(folder, scaled(SCAN_ROWS))


def _parts(folder: Path) -> None:
    write_numbers(folder, scaled(PARTS_ROWS), files=PARTS_FILES, features=PARTS_FEATURES)


MAKERS: Mapping[Input, Callable[[Path], None]] = {"images": _images, "scan": _scan, "parts": _parts}


class Inputs:
    """The inputs of one run, gone with the block. `makers` fill an empty folder each."""

    def __init__(self, makers: Mapping[Input, Callable[[Path], None]] = MAKERS) -> None:
        self._makers = makers
        self._home = tempfile.TemporaryDirectory(prefix="bench-inputs-")

    def __enter__(self) -> "Inputs":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._home.cleanup()

    def folder(self, name: Input) -> Path:
        """The folder with this input, which is made when it is asked for first."""
        folder = Path(self._home.name) / name
        if not folder.exists():
            folder.mkdir()
            self._makers[name](folder)
        return folder
