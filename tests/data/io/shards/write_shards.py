"""Write the files in this folder with the libraries whose formats they have.

    pip install --no-deps mosaicml-streaming litdata obstore brotli python-snappy cramjam zstd \
        catalogue xxhash
    python tests/data/io/shards/write_shards.py

mosaicml-streaming 0.13 and litdata 0.2.76 wrote them. Both need torchvision for things that are not
used here, so it is replaced by empty modules.
"""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Callable
from decimal import Decimal
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent
ROWS = 7
MDS_COLUMNS = {
    "bytes": "bytes",
    "str": "str",
    "int": "int",
    "uint8": "uint8",
    "int32": "int32",
    "float16": "float16",
    "float64": "float64",
    "str_int": "str_int",
    "str_float": "str_float",
    "str_decimal": "str_decimal",
    "json": "json",
    "array": "ndarray",
    "array_typed": "ndarray:int16",
    "array_fixed": "ndarray:float32:2,3",
    "png": "png",
    "jpeg": "jpeg",
    "pil": "pil",
    "pngs": "list[png]",
}
MDS_COMPRESSIONS = ("zstd:7", "gz", "bz2", "snappy", "br:5")


def image(index: int) -> Any:
    pixels = np.full((4, 6, 3), 20 * index, np.uint8)
    return import_module("PIL.Image").fromarray(pixels)


def mds_row(index: int) -> dict[str, Any]:
    """Return a row for `MDS_COLUMNS`."""
    encoded = io.BytesIO()
    image(index).save(encoded, format="JPEG")
    return {
        "bytes": bytes([index]) * index,
        "str": f"row {index} \N{SNOWMAN}",
        "int": index - 3,
        "uint8": np.uint8(index),
        "int32": np.int32(-index),
        "float16": np.float16(index / 2),
        "float64": np.float64(index / 3),
        "str_int": 10**12 * index,
        "str_float": index / 7,
        "str_decimal": Decimal(index) / 4,
        "json": {"index": index, "name": f"n{index}"},
        "array": np.arange(6, dtype=np.int64).reshape(2, 3) + index,
        "array_typed": np.arange(4, dtype=np.int16) * index,
        "array_fixed": np.full((2, 3), index, np.float32),
        "png": image(index),
        "jpeg": import_module("PIL.Image").open(io.BytesIO(encoded.getvalue())),
        "pil": image(index),
        "pngs": [image(index), image(index + 1)],
    }


def litdata_row(index: int) -> dict[str, Any]:
    """Return a row of nested values."""
    import torch

    return {
        "index": index,
        "ratio": index / 3,
        "flag": index % 2 == 0,
        "text": f"row {index} \N{SNOWMAN}",
        "content": bytes([index]) * index,
        "vector": np.arange(3, dtype=np.float32) + index,
        "matrix": np.arange(4, dtype=np.int64).reshape(2, 2) * index,
        "tensor": torch.arange(4, dtype=torch.float32).reshape(2, 2) + index,
        "tokens": torch.arange(3, dtype=torch.int64) + index,
        "nested": {"a": index, "b": [index, f"b{index}"]},
        "image": image(index),
    }


def arrow_row(index: int) -> dict[str, Any]:
    """Return a row that LitData writes in the format of Arrow."""
    return {"index": index, "text": f"row {index}", "list": [index, 2], "dict": {"a": index / 2}}


def write_mds() -> None:
    writer = import_module("streaming").MDSWriter
    for name, columns, compression in [
        ("mds", MDS_COLUMNS, None),
        *((f"mds-{each.partition(':')[0]}", {"int": "int"}, each) for each in MDS_COMPRESSIONS),
        ("mds-pickle", {"int": "pkl"}, None),
    ]:
        folder = FOLDER / name
        shutil.rmtree(folder, ignore_errors=True)
        with writer(
            out=str(folder), columns=columns, compression=compression, size_limit=4096
        ) as out:
            for index in range(ROWS):
                row = mds_row(index)
                out.write({column: row[column] for column in columns})


def write_litdata() -> None:
    writer = import_module("litdata.streaming.writer").BinaryWriter
    tokens = import_module("litdata.streaming.item_loader").TokensLoader
    cases: list[tuple[str, Callable[[int], object], dict[str, Any]]] = [
        ("litdata", litdata_row, {}),
        ("litdata-chunk", litdata_row, {"compression": "zstd", "compression_level": "chunk"}),
        (
            "litdata-batch",
            litdata_row,
            {"compression": "zstd", "compression_level": "batch", "compression_batch_size": 2},
        ),
        ("litdata-sample", litdata_row, {"compression": "zstd", "compression_level": "sample"}),
        ("litdata-arrow", arrow_row, {}),
        ("litdata-arrow-zstd", arrow_row, {"compression": "zstd"}),
        ("litdata-values", lambda index: index * 2, {}),
        ("litdata-pairs", lambda index: (index, f"t{index}"), {}),
        ("litdata-pickle", lambda index: {"index": index, "value": {index}}, {}),
        (
            "litdata-tokens",
            lambda index: litdata_row(index)["tokens"],
            {"item_loader": tokens(3), "chunk_size": 9},
        ),
    ]
    for name, row, options in cases:
        folder = FOLDER / name
        shutil.rmtree(folder, ignore_errors=True)
        out = writer(str(folder), **{"chunk_size": 3, **options})
        for index in range(ROWS):
            out.add_item(index, row(index))
        out.done()
        out.merge()


def without_torchvision() -> None:
    """Let the libraries import an empty torchvision."""
    for name in ("", ".datasets", ".transforms", ".transforms.functional"):
        module: Any = ModuleType(f"torchvision{name}")
        module.__spec__ = ModuleSpec(module.__name__, None)
        module.VisionDataset, module.to_tensor = object, None
        sys.modules[module.__name__] = module


if __name__ == "__main__":
    without_torchvision()
    write_mds()
    write_litdata()
