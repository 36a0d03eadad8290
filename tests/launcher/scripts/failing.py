"""An error in a function; the traceback begins at the script."""

import os


def inner(rank: int) -> None:
    raise RuntimeError(f"rank {rank} failed on purpose")


def outer() -> None:
    try:
        {}["missing"]
    except KeyError:
        inner(int(os.environ["RANK"]))


outer()
