"""JPEGs from Parquet files, decoded by a function of the program, into torch batches of 128; with
syncline and Ray Data.

The argument is `LIBRARY-python` (PIL, row by row, into floats with channels first) or
`LIBRARY-native` (simplejpeg, batch by batch, into bytes with channels last).
"""

from types import ModuleType
from typing import Any

import numpy as np

from bench.programs import common
from bench.programs.data import pipelines
from bench.programs.data.decoding import decode_native_batch, decode_python


def transform(row: dict[str, Any]) -> dict[str, Any]:
    row["image"] = decode_python(row["image"])
    return row


def transform_batch(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    batch["image"] = decode_native_batch(batch["image"])
    return batch


def decoded(data: ModuleType, decoder: str) -> Any:
    """Return the dataset of decoded images."""
    images = data.read_parquet(str(pipelines.input_folder()))
    return (
        images.map(transform)
        if decoder == "python"
        else images.map_batches(transform_batch, batch_size=1024)
    )


if __name__ == "__main__":
    options = common.arguments()
    library, _, decoder = options.library.partition("-")
    core, data = pipelines.start(library)
    dataset = decoded(data, decoder)
    common.write(
        options.out,
        pipelines.two_epochs(
            lambda: dataset.iter_torch_batches(batch_size=pipelines.BATCH_ROWS), "image"
        ),
    )
    core.shutdown()
