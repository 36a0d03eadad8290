"""`put` and `get` of 100 MB arrays: each is a new object, read once (one byte per page), and its
last reference is dropped.

The result is bytes by total time, not a median: a store may reuse memory for some objects only.
"""

import importlib
from types import ModuleType

import numpy as np

from bench.programs import common

SIZE_BYTES = 100_000_000
WARM_UP = 5
REPEATS = 60


def round_trips(library: ModuleType) -> common.Run:
    """Return a function that puts and gets n arrays, after a warm-up of the store."""
    array = np.random.default_rng(0).integers(0, 256, SIZE_BYTES, dtype=np.uint8)

    def put_and_get(count: int) -> None:
        for index in range(count):
            array[0] = index
            reference = library.put(array)
            stored = library.get(reference)
            stored[::4096].sum()
            assert int(stored[0]) == index
            del reference, stored

    put_and_get(WARM_UP)
    return put_and_get


if __name__ == "__main__":
    options = common.arguments()
    library = importlib.import_module(options.library)
    library.init(num_cpus=2)
    per_s = common.rate(round_trips(library), REPEATS, repeats=1)
    common.write(options.out, {"gb_per_s": per_s * SIZE_BYTES / 1e9})
    library.shutdown()
