"""`Pool`: the interface of `multiprocessing.Pool` on actors, on one machine or on a cluster.

- `pool`: `Pool` itself
- `results`: `AsyncResult` and the iterators of `imap`
- `chunks`: calls that travel together, and the actor that runs them
- `packed_functions`: pickled functions that are used again
- `dispatcher`: which worker runs which chunk

`TimeoutError` and `JoinableQueue` are those of the standard library.
"""

from multiprocessing import JoinableQueue, TimeoutError

from syncline.util.multiprocessing.pool import Pool
from syncline.util.multiprocessing.results import AsyncResult

__all__ = ["AsyncResult", "JoinableQueue", "Pool", "TimeoutError"]
