"""No-op tasks in the two process pools of the standard library, with two workers each."""

import concurrent.futures
import multiprocessing

from bench.programs import common


def echo(value: int) -> int:
    return value


def measure_futures() -> common.Values:
    with concurrent.futures.ProcessPoolExecutor(2) as pool:

        def one_at_a_time(count: int) -> None:
            for index in range(count):
                pool.submit(echo, index).result()

        def many_in_flight(count: int) -> None:
            assert [
                future.result() for future in [pool.submit(echo, index) for index in range(count)]
            ][-1] == count - 1

        many_in_flight(500)
        return {
            "one_per_s": common.rate(one_at_a_time, 1000),
            "many_per_s": common.rate(many_in_flight, 5000),
        }


def measure_pool() -> common.Values:
    with multiprocessing.Pool(2) as pool:

        def one_at_a_time(count: int) -> None:
            for index in range(count):
                pool.apply(echo, (index,))

        def many_in_flight(count: int) -> None:
            assert [
                result.get()
                for result in [pool.apply_async(echo, (index,)) for index in range(count)]
            ][-1] == count - 1

        many_in_flight(500)
        return {
            "one_per_s": common.rate(one_at_a_time, 1000),
            "many_per_s": common.rate(many_in_flight, 5000),
        }


if __name__ == "__main__":
    options = common.arguments()
    common.write(options.out, {"futures": measure_futures, "pool": measure_pool}[options.library]())
