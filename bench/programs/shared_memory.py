"""Upper limit by the memory: 100 MB copied into shared memory, into a fresh segment each time or
into the same one.
"""

import time
from multiprocessing.shared_memory import SharedMemory

import numpy as np

from bench.programs import common

SIZE_BYTES = 100_000_000
WARM_UP = 5
REPEATS = 60


def copy(array: np.ndarray, segment: SharedMemory) -> None:
    view: np.ndarray = np.ndarray((SIZE_BYTES,), dtype=np.uint8, buffer=segment.buf)
    view[:] = array
    view[::4096].sum()


def copy_fresh(array: np.ndarray) -> None:
    segment = SharedMemory(create=True, size=SIZE_BYTES)
    copy(array, segment)
    segment.close()
    segment.unlink()


if __name__ == "__main__":
    options = common.arguments()
    array = np.random.default_rng(0).integers(0, 256, SIZE_BYTES, dtype=np.uint8)
    reused = SharedMemory(create=True, size=SIZE_BYTES) if options.library == "reused" else None
    seconds = []
    for _ in range(WARM_UP + REPEATS):
        begin = time.perf_counter()
        if reused is None:
            copy_fresh(array)
        else:
            copy(array, reused)
        seconds.append(time.perf_counter() - begin)
    if reused is not None:
        reused.close()
        reused.unlink()
    common.write(options.out, {"gb_per_s": SIZE_BYTES * REPEATS / sum(seconds[WARM_UP:]) / 1e9})
