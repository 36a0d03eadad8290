"""The same images with torch's DataLoader and two worker processes; the argument is `python` or
`native`.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow.parquet as pq
import torch
from torch.utils.data import DataLoader, Dataset

from bench.programs import common
from bench.programs.data import pipelines
from bench.programs.data.decoding import decode_native, decode_python


class Images(Dataset[tuple[torch.Tensor, int]]):
    """Rows of a folder of Parquet files, decoded on access."""

    def __init__(self, decode: Callable[[bytes], np.ndarray], limit: int | None = None) -> None:
        table = pq.read_table(pipelines.input_folder(), columns=["image", "label"]).slice(0, limit)
        self.jpegs: Sequence[bytes] = table["image"].to_pylist()
        self.labels: Sequence[int] = table["label"].to_pylist()
        self.decode = decode

    def __len__(self) -> int:
        return len(self.jpegs)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.from_numpy(self.decode(self.jpegs[index])), self.labels[index]


if __name__ == "__main__":
    options = common.arguments()
    images = Images({"python": decode_python, "native": decode_native}[options.library])
    loader = DataLoader(
        images, batch_size=pipelines.BATCH_ROWS, num_workers=2, persistent_workers=True
    )
    common.write(options.out, pipelines.two_epochs(lambda: loader, 0))
