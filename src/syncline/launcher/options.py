"""Command line of `syncline run`: the options of torchrun 2.13, with the same names, defaults and
environment variables (`PET_NAME`), and a few more.

It is parsed without torch, because the launcher itself never imports it. Numbers are checked here
(`option_values`); the agent gives the values to torch's own code, which checks the rest.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from syncline import settings
from syncline.launcher import option_values, slurm
from syncline.storage.run_names import checked_run_name

_TEXT: tuple[tuple[tuple[str, ...], str | None, str], ...] = (
    (("--nnodes",), "1:1", "Number of nodes, or MIN:MAX for a job whose number may change."),
    (
        ("-n", "--nproc-per-node", "--nproc_per_node"),
        "1",
        "Workers per node: a number, auto, gpu, cpu or xpu.",
    ),
    (("--rdzv-backend", "--rdzv_backend"), "static", "Rendezvous backend: static, c10d, etcd-v2."),
    (("--rdzv-endpoint", "--rdzv_endpoint"), "", "Rendezvous endpoint, HOST:PORT."),
    (("--rdzv-id", "--rdzv_id"), "none", "Id of the job, the same on all nodes."),
    (("--rdzv-conf", "--rdzv_conf"), "", "Settings of the rendezvous: KEY=VALUE,KEY=VALUE."),
    (("--event-log-handler", "--event_log_handler"), "null", "Registered handler of events."),
    (("--role",), "default", "Name of the workers' role."),
    (("--log-dir", "--log_dir"), None, "Parent directory of the log files of --redirects, --tee."),
    (
        ("-r", "--redirects"),
        "0",
        "Streams that go to files instead of the console: 1 stdout, 2 stderr, 3 both; or "
        "LOCAL_RANK:STREAMS,…",
    ),
    (("-t", "--tee"), "0", "Streams that go to files and to the console, as in --redirects."),
    (
        ("--local-ranks-filter", "--local_ranks_filter"),
        "",
        "Local ranks whose output the console shows: 0,1,…",
    ),
    (("--master-addr", "--master_addr"), "127.0.0.1", "Address of node 0 (static rendezvous)."),
    (("--local-addr", "--local_addr"), None, "Address of this node for the others."),
    (
        ("--signals-to-handle", "--signals_to_handle"),
        "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
        "Signals that are passed on to the workers.",
    ),
)
"""Options with a text: names, default, help."""

_FLAGS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("--standalone",), "Run only on this node, with a separate rendezvous."),
    (("-m", "--module"), "Run a module, as `python -m` does."),
    (("--no-python", "--no_python"), "Run a program that is not a Python script."),
    (("--run-path", "--run_path"), "Run the script with runpy.run_path."),
    (
        ("--virtual-local-rank", "--virtual_local_rank"),
        "Show each worker its own GPU only, as device 0, with LOCAL_RANK=0.",
    ),
)


_OWN = frozenset(
    {
        *("name", "storage_path", "no_record", "no_warm", "hang_report_s"),
        *("metric", "mode", "budget", "group", "as_json", "keep_best"),
    }
)
"""Options that torchrun does not have."""
_NOT_IN_NAMES = re.compile(r"[^\w.-]+")
_TYPES: Mapping[str, Callable[[str], str]] = {
    "nnodes": option_values.nodes,
    "nproc_per_node": option_values.workers,
    "local_ranks_filter": option_values.ranks,
    "signals_to_handle": option_values.signals,
}
"""Types of options with a text that has parts; others take any text."""
LAST_PORT = 65_535


class _Help(argparse.RawDescriptionHelpFormatter):
    """Lists each option once, although each has two spellings."""

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: Any = None) -> None:
        """Begin as the help of the other commands."""
        super().add_usage(usage, actions, groups, "Usage: ")

    def _format_action_invocation(self, action: argparse.Action) -> str:
        names = [name for name in action.option_strings if "_" not in name]
        if not names:
            return super()._format_action_invocation(action)
        value = "" if action.nargs == 0 else f" {action.metavar or action.dest.upper()}"
        return ", ".join(names) + value


def parser() -> argparse.ArgumentParser:
    """Return the parser."""
    found = argparse.ArgumentParser(
        prog="syncline run",
        usage="%(prog)s [OPTIONS] SCRIPT|-m MODULE [ARGS]...",
        description=(
            "Run a script in several processes, as torchrun does, with torchrun's options.\n"
            "The output of each rank is in the run record: `syncline runs`, `syncline logs`."
        ),
        formatter_class=_Help,
    )
    _add_record(found)
    _add_start(found)
    _add_experiment(found)
    for names, default, text in _TEXT:
        dest = _destination(names)
        found.add_argument(
            *names,
            dest=dest,
            type=_TYPES.get(dest, str),
            default=settings.environment(_variable(dest), default),
            help=text,
        )
    for names, text in _FLAGS:
        dest = _destination(names)
        is_set = _is_set(found, _variable(dest))
        found.add_argument(*names, dest=dest, action="store_true", default=is_set, help=text)
    _add_others(found)
    found.add_argument("training_script", metavar="SCRIPT", help="Script, or module with -m.")
    found.add_argument(
        "training_script_args", metavar="...", nargs=argparse.REMAINDER, help="Its arguments."
    )
    return found


def _add_record(found: argparse.ArgumentParser) -> None:
    found.add_argument("--name", help="Name of the run; by default the script's and the time.")
    found.add_argument("--storage-path", help="Parent directory or URI of the run record.")
    found.add_argument("--no-record", action="store_true", help="Write no run record.")


def _add_start(found: argparse.ArgumentParser) -> None:
    found.add_argument(
        "--no-warm", action="store_true", help="Do not use the template of `syncline warm`."
    )
    found.add_argument(
        "--hang-report-s",
        type=option_values.seconds_or_never,
        default=60.0,
        metavar="SECONDS",
        help="Print stacks when ranks wait so long in a collective operation; 0 for never (60).",
    )


def _add_experiment(found: argparse.ArgumentParser) -> None:
    """Add the options that compare a run with earlier ones."""
    found.add_argument(
        "--metric",
        help="Compare the run with earlier ones by this metric, which its output contains.",
    )
    found.add_argument(
        "--mode", choices=["min", "max"], default="min", help="Minimize or maximize it (min)."
    )
    found.add_argument(
        "--budget",
        type=option_values.duration,
        metavar="TIME",
        help="With --metric: end the run after 300s, 5m or 2h.",
    )
    found.add_argument(
        "--group", help="With --metric: compare with runs of this group (the repository)."
    )
    found.add_argument(
        "--keep-best",
        action="store_true",
        help="With --metric: restore the files of the best run with git unless this is better.",
    )
    found.add_argument(
        "--json",
        dest="as_json",
        action="store_true",
        help="With --metric: print the verdict as JSON, and the output to stderr.",
    )


def _add_others(found: argparse.ArgumentParser) -> None:
    """Add the options whose value is not text."""
    found.add_argument(
        *("--max-restarts", "--max_restarts"),
        type=option_values.whole_number(0),
        default=settings.environment("PET_MAX_RESTARTS", "0"),
        help="Restarts of the workers before the job fails.",
    )
    found.add_argument(
        *("--monitor-interval", "--monitor_interval"),
        type=option_values.interval,
        default=settings.environment("PET_MONITOR_INTERVAL", "0.1"),
        help="Seconds between checks of the workers.",
    )
    found.add_argument(
        *("--start-method", "--start_method"),
        default=settings.environment("PET_START_METHOD", "spawn"),
        choices=["spawn", "fork", "forkserver"],
        help="Ignored: workers are forked from a process that has imported torch.",
    )
    found.add_argument(
        *("--node-rank", "--node_rank"),
        type=option_values.whole_number(0),
        default=settings.environment("PET_NODE_RANK", "0"),
        help="Rank of this node (static rendezvous).",
    )
    found.add_argument(
        *("--master-port", "--master_port"),
        type=option_values.whole_number(0, LAST_PORT),
        default=settings.environment("PET_MASTER_PORT"),
        help="Port of node 0 (static rendezvous).",
    )
    found.add_argument(
        *("--shutdown-timeout", "--shutdown_timeout"),
        type=option_values.whole_number(0),
        default=settings.environment("PET_SHUTDOWN_TIMEOUT"),
        help="Seconds that workers may take to exit after a signal (30).",
    )
    found.add_argument("--logs-specs", "--logs_specs", help="Entry point with a LogsSpecs.")
    found.add_argument(
        "--numa-binding",
        "--numa_binding",
        choices=["node", "socket", "exclusive", "core-complex"],
        help="Bind workers to CPUs near their GPUs.",
    )
    for stream in ("stdout", "stderr"):
        found.add_argument(
            f"--duplicate-{stream}-filters",
            f"--duplicate_{stream}_filters",
            type=option_values.comma_separated,
            default=settings.environment(f"PET_DUPLICATE_{stream.upper()}_FILTERS") or [],
            help=f"Texts; lines of {stream} with one of them are also written to a file.",
        )


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; without options for nodes, complete it from Slurm's variables.

    Exits with code 2 if it is invalid, and with 0 after `--help`.
    """
    options = parser()
    found = options.parse_args(arguments)
    try:
        if found.name is not None:
            checked_run_name(found.name, f"--name {found.name!r}")
        slurm.complete(found, settings.inherited_environment())
        _check_node_rank(found)
    except ValueError as error:
        options.error(str(error))
    return found


def _check_node_rank(found: argparse.Namespace) -> None:
    """Raise ValueError for a node that the others do not expect, and that would wait for them."""
    most = int(found.nnodes.rpartition(":")[2])
    is_static = found.rdzv_backend == "static" and not found.standalone
    has_address = found.rdzv_endpoint or found.master_port is not None
    if is_static and (most > 1 or has_address) and found.node_rank >= most:
        raise ValueError(
            f"--node-rank {found.node_rank} is no node of --nnodes {found.nnodes}: the ranks of "
            f"{most} nodes are 0 to {most - 1}"
        )


def _is_set(found: argparse.ArgumentParser, variable: str) -> bool:
    """Return the value of a variable for a flag; exit with code 2 if it is not a number."""
    try:
        return option_values.switch(settings.environment(variable) or "")
    except argparse.ArgumentTypeError as error:
        found.error(f"{variable}: {error}")


def default_name(stem: str) -> str:
    """Return the name of a run that has none: that of its script or module, and the time."""
    moment = time.strftime("%Y-%m-%d_%H-%M-%S")
    return f"{_NOT_IN_NAMES.sub('_', stem) or 'run'}-{moment}-{os.urandom(2).hex()}"


def without_record(arguments: Sequence[str]) -> list[str]:
    """Return valid options without those of the run record and of experiments."""
    removed = argparse.ArgumentParser(add_help=False)
    _add_record(removed)
    _add_experiment(removed)
    return removed.parse_known_args(arguments)[1]


def for_torch(found: argparse.Namespace) -> dict[str, Any]:
    """Return the values of torchrun's options."""
    return {name: value for name, value in vars(found).items() if name not in _OWN}


def worker_count(options: argparse.Namespace) -> int | None:
    """Return the number of workers per node; None if torch must count devices."""
    return int(options.nproc_per_node) if options.nproc_per_node.isdecimal() else None


def _destination(names: Sequence[str]) -> str:
    longest = next(name for name in names if name.startswith("--"))
    return longest.lstrip("-").replace("-", "_")


def _variable(dest: str) -> str:
    return f"PET_{dest.upper()}"
