"""`put` and `get` of 100 MB arrays: each a new object, read once (one byte of every page), the last reference dropped.

Bytes by total time, not by the median: a store that sometimes finds memory to reuse and sometimes does not is both at once.
"""

import importlib
import time

import numpy as np

from bench.programs import common

SIZE_BYTES = 100_000_000
WARM_UP = 5
REPEATS = 60

if __name__ == "__main__":
    options = common.arguments()
    library = importlib.import_module(options.library)
    library.init(num_cpus=2)
    array = np.random.default_rng(0).integers(0, 256, SIZE_BYTES, dtype=np.uint8)
    seconds = []
    for index in range(WARM_UP + REPEATS):
        array[0] = index
        begin = time.perf_counter()
        reference = library.put(array)
        stored = library.get(reference)
        stored[::4096].sum()
        first = int(stored[0])
        del reference, stored
        seconds.append(time.perf_counter() - begin)
        assert first == index
    common.write(options.out, {"gb_per_s": SIZE_BYTES * REPEATS / sum(seconds[WARM_UP:]) / 1e9})
    library.shutdown()
