"""The same images with Daft's decoder: into torch batches of 128 (argument `torch`), or only
decoded (`decode`).
"""

from collections.abc import Iterator
from typing import Any

import daft
import torch
from daft.functions import decode_image

from bench.programs import common
from bench.programs.data import pipelines

SHAPE = (32, 32, 3)


def decoded(as_tensors: bool) -> Any:
    """Return the frame of decoded images, as Daft's images of one size or as tensors."""
    image = decode_image(daft.col("image"), mode="RGB").cast(daft.DataType.image("RGB", *SHAPE[:2]))
    frame = daft.read_parquet(str(pipelines.input_folder() / "*.parquet"))
    return frame.with_column(
        "image",
        image.cast(daft.DataType.tensor(daft.DataType.uint8(), SHAPE)) if as_tensors else image,
    )


def torch_batches(frame: Any) -> Iterator[dict[str, torch.Tensor]]:
    """Yield batches of 128 rows; the last part of each of Daft's batches is smaller."""
    for batch in frame.to_arrow_iter():
        # Copied as by all other libraries: the arrays are read-only, which torch does not support.
        images = torch.from_numpy(batch.column("image").to_numpy_ndarray().copy())
        labels = torch.from_numpy(batch.column("label").to_numpy().copy())
        for begin in range(0, len(labels), pipelines.BATCH_ROWS):
            rows = slice(begin, begin + pipelines.BATCH_ROWS)
            yield {"image": images[rows], "label": labels[rows]}


if __name__ == "__main__":
    options = common.arguments()
    frame = decoded(options.library == "torch")
    batches = {"torch": lambda: torch_batches(frame), "decode": frame.to_arrow_iter}[
        options.library
    ]
    common.write(options.out, pipelines.two_epochs(batches, "label"))
