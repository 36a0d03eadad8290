"""The command `syncline`: starts and looks at clusters, shows runs and their logs, submits
programs, measures and examines.

Files, in the order in which a command line flows through them: `app` (the commands and what loads
them), `output` (tables, JSON, errors, exit codes), then the commands: `start`, `launcher` (both
hand over to Ray's own command, found by `ray_command`); `runs`, `logs`, `status` (over `records`,
where commands find runs; `engines` connects to a cluster); `stack` and `profile` (over
`live_runs`); `submit` and `jobs` (over `packages` and `job_api`, with `websocket` and
`cluster_token`); `microbenchmark` (over `measuring`); `migrate` (over the package `migration`);
`doctor`, a package of its own.

`syncline --help` loads none of them: a command's module is imported when the command runs. Exit
codes of every command: 0 it is well, 1 it failed or something is wrong, 2 the command line cannot
be understood; commands that hand over pass Ray's code on.
"""

import importlib
import importlib.util
import sys

__all__ = ["main"]


def main() -> int:
    """Run the command line of this process; its exit code."""
    if importlib.util.find_spec("click") is None:
        print(
            'syncline: the command line needs click, which is not installed: run `pip install "syncline[cli]"`',
            file=sys.stderr,
        )
        return 1
    code: int = importlib.import_module("syncline.cli.app").run()
    return code
