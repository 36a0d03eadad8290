"""Calls of one actor: one at a time, and many in flight."""

import importlib
from types import ModuleType

from bench.programs import common


def calls(library: ModuleType) -> tuple[common.Run, common.Run]:
    """Return functions that make n calls, one at a time and many in flight, of a started actor."""

    @library.remote
    class Echo:
        def call(self, value: int) -> int:
            return value

    actor = Echo.remote()
    return common.calls(library, lambda value: actor.call.remote(value))


if __name__ == "__main__":
    options = common.arguments()
    library = importlib.import_module(options.library)
    library.init(num_cpus=2)
    one_at_a_time, many_in_flight = calls(library)
    common.write(
        options.out,
        {
            "one_per_s": common.rate(one_at_a_time, 2000),
            "many_per_s": common.rate(many_in_flight, 10_000),
        },
    )
    library.shutdown()
