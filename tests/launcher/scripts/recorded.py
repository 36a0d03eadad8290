"""`record` writes the error of rank 1 into an error file."""

import os

from torch.distributed.elastic.multiprocessing.errors import record


def check(rank: int) -> None:
    if rank == 1:
        raise ValueError(f"rank {rank} has no data")


@record
def main() -> None:
    check(int(os.environ["RANK"]))


if __name__ == "__main__":
    main()
