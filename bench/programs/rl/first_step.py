"""From the start of the process to the end of the first training step; for comparison, to the end
of `import torch, gymnasium`.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import time

from bench.programs import common


def main() -> None:
    """Measure one library."""
    options = common.arguments()
    values: common.Values = {}
    if options.library == "imports":
        import gymnasium  # noqa: F401
        import torch  # noqa: F401
    else:
        from bench.programs.rl.ppo import LIBRARIES
        from bench.programs.rl.settings import SETTINGS

        begin = time.perf_counter()
        iterate = LIBRARIES[options.library](SETTINGS["cartpole"])
        values["build_s"] = time.perf_counter() - begin
        iterate()
    common.write(options.out, {**values, "first_step_at": time.monotonic()})
    os._exit(0)  # leaving Ray takes seconds


if __name__ == "__main__":
    main()
