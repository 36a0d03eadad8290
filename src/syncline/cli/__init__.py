"""The command `syncline`: clusters, runs and their logs, jobs, benchmarks and checks.

Files in the order in which a command line flows through them: `app` (the table of commands),
`output` (tables, JSON, errors, exit codes), then the commands. `start` and `launcher` run Ray's own
command, found by `ray_command`. `runs` (with `run_changes`), `logs`, `status`, `debug`, `stack` and
`profile` find runs through `find_runs`; `engines` connects to a cluster. `dashboard` serves the
pages. `submit` and `jobs` use the package `job_submission`. `microbenchmark` measures an engine.
`run` is the launcher's command line, and `warm` starts its template. `migrate` converts programs
with the package `migration`; `doctor` is a package that checks nodes, `serve` one that runs and
deploys applications, and `rl` one that trains and evaluates agents; `lazy_commands` is the group of
both.

`syncline --help` loads none of them: a command's module is imported when the command runs. Exit
codes: 0 success, 1 failure or a problem was found, 2 invalid command line; commands that run Ray's
command return its exit code.
"""

import importlib
import importlib.util
import sys

from syncline.core.embedded import early_start

__all__ = ["main"]


def main() -> int:
    """Run the command line of this process; return its exit code."""
    if sys.argv[1:2] == ["run"]:  # without the import of the commands' libraries
        launched: int = importlib.import_module("syncline.launcher.launch").main(sys.argv[2:])
        return launched
    if importlib.util.find_spec("click") is None:
        print(
            'syncline: the command line needs click: run `pip install "syncline[cli]"`',
            file=sys.stderr,
        )
        return 1
    early_start.disallow()  # most commands of `serve` start no engine
    code: int = importlib.import_module("syncline.cli.app").run()
    return code
