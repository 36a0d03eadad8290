"""Input files of the programs, created once per run in a temporary folder, on first use.

The environment variable BENCH_SCALE multiplies the sizes. Images come from the folder `train` below
BENCH_CIFAR10, or from the sample in `examples/data`.
"""

import io
import os
import tarfile
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
"""Environment variable with the folder of the row's input."""
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
PHOTOS = 1_500
PHOTO_FILES = 8
PHOTO_NOISE = 17
PHOTO_QUALITY = 95


def scaled(rows: int, environment: Mapping[str, str] = os.environ) -> int:
    """Return a number of rows multiplied by BENCH_SCALE, at least 1."""
    return max(1, int(rows * float(environment.get(SCALE) or 1)))


def link_images(folder: Path, source: Path, rows: int) -> None:
    """Link the Parquet files of `source` repeatedly until they have at least `rows` rows.

    Raises:
        FileNotFoundError: `source` has no Parquet file.
    """
    files = sorted(source.resolve().glob("*.parquet"))
    if not files:
        raise FileNotFoundError(
            f"{source} has no *.parquet: set {CIFAR10} to a folder with train/*.parquet"
        )
    sizes = [pq.read_metadata(file).num_rows for file in files]
    linked = 0
    for number in count():
        if linked >= rows:
            return
        index = number % len(files)
        (folder / f"part-{number:03}.parquet").symlink_to(files[index])
        linked += sizes[index]


def write_numbers(
    folder: Path, rows: int, *, files: int = SCAN_FILES, features: int = FEATURES
) -> None:
    """Write random numbers: `id`, `group` (0 to 99), and float32 features `f00`, `f01`, …; 108
    bytes per row with 24 features.
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
                f"f{index:02}": pa.array(random.standard_normal(own, dtype=np.float32))
                for index in range(features)
            },
        }
        # No dictionary for random numbers, which hardly repeat.
        pq.write_table(
            pa.table(columns),
            folder / f"part-{number:03}.parquet",
            row_group_size=SCAN_ROW_GROUP,
            use_dictionary=["group"],
        )


def write_photos(folder: Path, source: Path, photos: int) -> None:
    """Write photos of 500 x 375 pixels, 110 kB each, as Parquet files, WebDatasets and single
    files. They are images of `source`, enlarged, with noise.
    """
    images = pq.read_table(sorted(source.glob("*.parquet"))[0])["image"]
    random = np.random.default_rng(0)
    for name in ("parquet", "tar", "files"):
        (folder / name).mkdir()
    each = -(-photos // PHOTO_FILES)
    for number in range(PHOTO_FILES):
        keys = range(number * each, min((number + 1) * each, photos))
        jpegs = [_enlarged(images[key % len(images)].as_py(), random) for key in keys]
        labels = [key % 10 for key in keys]
        pq.write_table(
            pa.table({"image": pa.array(jpegs, pa.binary()), "label": labels}),
            folder / "parquet" / f"part-{number:03}.parquet",
            row_group_size=64,
            compression="none",
        )
        with tarfile.open(folder / "tar" / f"part-{number:03}.tar", "w") as archive:
            for key, jpeg, label in zip(keys, jpegs, labels, strict=True):
                (folder / "files" / f"{key:06}.jpg").write_bytes(jpeg)
                for suffix, content in (("jpg", jpeg), ("cls", str(label).encode())):
                    member = tarfile.TarInfo(f"{key:06}.{suffix}")
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))


def _enlarged(jpeg: bytes, random: np.random.Generator) -> bytes:
    import simplejpeg
    from PIL import Image

    image = Image.open(io.BytesIO(jpeg)).resize((500, 375), Image.Resampling.BICUBIC)
    noise = random.integers(-PHOTO_NOISE, PHOTO_NOISE + 1, (375, 500, 1), np.int16)
    pixels = np.clip(np.asarray(image, np.int16) + noise, 0, 255).astype(np.uint8)
    encoded: bytes = simplejpeg.encode_jpeg(pixels, PHOTO_QUALITY)
    return encoded


def _photos(folder: Path) -> None:
    write_photos(folder, _training_images(), scaled(PHOTOS))


def _images(folder: Path) -> None:
    link_images(folder, _training_images(), scaled(IMAGES))


def _training_images() -> Path:
    return Path(os.environ.get(CIFAR10) or SAMPLE) / "train"


def _scan(folder: Path) -> None:
    write_numbers(folder, scaled(SCAN_ROWS))


def _parts(folder: Path) -> None:
    write_numbers(folder, scaled(PARTS_ROWS), files=PARTS_FILES, features=PARTS_FEATURES)


MAKERS: Mapping[Input, Callable[[Path], None]] = {
    "images": _images,
    "scan": _scan,
    "parts": _parts,
    "photos": _photos,
}


class Inputs:
    """Inputs of one run, deleted on exit. Each function in `makers` fills an empty folder."""

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
        """Return the folder of an input; create it on first use."""
        folder = Path(self._home.name) / name
        if not folder.exists():
            folder.mkdir()
            self._makers[name](folder)
        return folder
