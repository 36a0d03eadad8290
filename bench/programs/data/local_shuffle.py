"""Torch batches of decoded images with and without a local shuffle, streamed and from memory; with
syncline and Ray Data.

Passes with and without shuffle alternate. The buffer holds about 50 batches.
"""

import statistics
from collections.abc import Callable, Iterable
from typing import Any

from bench.programs import common
from bench.programs.data import images, pipelines

BUFFER_ROWS = 6_400
ROUNDS = 3


def compared(dataset: Any) -> tuple[float, float]:
    """Return rows per second without and with a local shuffle, medians after a warm-up pass."""

    def batches(**options: Any) -> Callable[[], Iterable[Any]]:
        return lambda: dataset.iter_torch_batches(batch_size=pipelines.BATCH_ROWS, **options)

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
