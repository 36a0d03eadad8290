"""No-op tasks on two workers: one at a time, and many in flight."""

import importlib
from types import ModuleType

from bench.programs import common


def calls(library: ModuleType) -> tuple[common.Run, common.Run]:
    """Return functions that make n calls, one at a time and many in flight, on started workers."""

    @library.remote
    def echo(value: int) -> int:
        return value

    return common.calls(library, echo.remote)


if __name__ == "__main__":
    options = common.arguments()
    library = importlib.import_module(options.library)
    library.init(num_cpus=2)
    one_at_a_time, many_in_flight = calls(library)
    common.write(
        options.out,
        {
            "one_per_s": common.rate(one_at_a_time, 1000),
            "many_per_s": common.rate(many_in_flight, 5000),
        },
    )
    library.shutdown()
