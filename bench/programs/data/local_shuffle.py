"""Torch batches of decoded images with and without a local shuffle, streamed and from memory; with
syncline and Ray Data.

Each batch becomes the input of a model, floats between 0 and 1 with channels first, in both passes:
without that, a pass without shuffle would not read the images at all. Passes with and without
shuffle alternate. The buffer holds about 50 batches.
"""

import statistics
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from bench.programs import common
from bench.programs.data import images, pipelines

BUFFER_ROWS = 6_400
ROUNDS = 3


def model_inputs(batches: Iterable[dict[str, torch.Tensor]]) -> Iterator[dict[str, torch.Tensor]]:
    """Yield batches whose images are float32 `(rows, 3, 32, 32)`."""
    for batch in batches:
        yield {**batch, "image": batch["image"].permute(0, 3, 1, 2).float().div_(255)}


def compared(dataset: Any) -> tuple[float, float]:
    """Return rows per second without and with a local shuffle, medians after a warm-up pass."""

    def batches(**options: Any) -> Callable[[], Iterable[Any]]:
        return lambda: model_inputs(
            dataset.iter_torch_batches(batch_size=pipelines.BATCH_ROWS, **options)
        )

    plain, shuffled = (
        batches(),
        batches(local_shuffle_buffer_size=BUFFER_ROWS, local_shuffle_seed=0),
    )
    pipelines.timed(plain, "image")
    rates = [
        (pipelines.timed(plain, "image").rows_per_s, pipelines.timed(shuffled, "image").rows_per_s)
        for _ in range(ROUNDS)
    ]
    return statistics.median(pair[0] for pair in rates), statistics.median(
        pair[1] for pair in rates
    )


if __name__ == "__main__":
    options = common.arguments()
    core, data = pipelines.start(options.library)
    dataset = images.decoded(data, "native")
    plain, shuffled = compared(dataset)
    held_plain, held_shuffled = compared(dataset.materialize())
    common.write(
        options.out,
        {
            "share": shuffled / plain,
            "rows_per_s": shuffled,
            "held_share": held_shuffled / held_plain,
            "held_rows_per_s": held_shuffled,
        },
    )
    core.shutdown()
