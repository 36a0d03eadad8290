"""`Pool.map` and `Pool.apply` with two workers: pools of the libraries and of Python itself."""

import importlib

from bench.programs import common

ITEMS = 20_000


def square(value: int) -> int:
    return value * value


def measure(module: str) -> common.Values:
    with importlib.import_module(module).Pool(2) as pool:
        expected = [square(value) for value in range(ITEMS)]

        def items(count: int) -> None:
            for _ in range(count // ITEMS):
                assert pool.map(square, range(ITEMS)) == expected

        def chunks(count: int) -> None:
            assert len(pool.map(square, range(count), chunksize=1)) == count

        def calls(count: int) -> None:
            for index in range(count):
                pool.apply(square, (index,))

        items(ITEMS)
        chunks(200)
        calls(100)
        return {
            "items_per_s": common.rate(items, 10 * ITEMS),
            "chunks_per_s": common.rate(chunks, 5000),
            "calls_per_s": common.rate(calls, 1000),
        }


if __name__ == "__main__":
    options = common.arguments()
    if options.library != "multiprocessing":
        importlib.import_module(options.library).init(num_cpus=2)
        options.library += ".util.multiprocessing"
    common.write(options.out, measure(options.library))
