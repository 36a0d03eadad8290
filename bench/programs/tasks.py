"""No-op tasks on two workers: one at a time, and many in flight."""

import importlib

from bench.programs import common

if __name__ == "__main__":
    options = common.arguments()
    library = importlib.import_module(options.library)
    library.init(num_cpus=2)

    @library.remote
    def echo(value: int) -> int:
        return value

    def one_at_a_time(count: int) -> None:
        for index in range(count):
            library.get(echo.remote(index))

    def many_in_flight(count: int) -> None:
        assert library.get([echo.remote(index) for index in range(count)])[-1] == count - 1

    many_in_flight(500)
    common.write(options.out, {"one_per_s": common.rate(one_at_a_time, 1000), "many_per_s": common.rate(many_in_flight, 5000)})
    library.shutdown()
