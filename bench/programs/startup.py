"""Two workers, one all-reduce of a small tensor, and its time on the monotonic clock, from which
the launcher subtracts the start of the process.
"""

import time
from typing import Any

import torch
import torch.distributed

from bench.programs import common, training


def train_fn(config: dict[str, Any]) -> None:
    tensor = torch.ones(4)
    torch.distributed.all_reduce(tensor)
    now = time.monotonic()
    assert tensor[0].item() == 2.0
    if torch.distributed.get_rank() == 0:
        common.write(config["out"], {"all_reduce_at": now})
        print(f"user: first all-reduce at {now:.3f}", flush=True)


if __name__ == "__main__":
    options = common.arguments()
    training.train(options.library, train_fn, {"out": options.out})
