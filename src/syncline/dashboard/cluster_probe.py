"""Process that queries a cluster for the dashboard: `python -m syncline.dashboard.cluster_probe
ADDRESS`.

Ray terminates a process whose cluster is gone, so the dashboard itself does not connect. This
process connects and answers each line on its standard input with a line of JSON on its standard
output: the input of `engine_snapshot`, or {"failed": reason}. It exits when its input is closed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import IO

from syncline.core import api
from syncline.core.lifecycle import init_quietly, shutdown
from syncline.dashboard.engine_snapshots import ROWS
from syncline.runs.json_values import JsonObject


def cluster_facts() -> JsonObject:
    """Return nodes, resources, actors and tasks of the cluster."""
    return {
        "nodes": api.nodes(),
        "resources": {"total": api.cluster_resources(), "available": api.available_resources()},
        "actors": asdict(api.actors(ROWS)),
        "tasks": asdict(api.tasks(ROWS)),
    }


def serve(questions: Iterable[str], answers: IO[str], facts: Callable[[], JsonObject]) -> None:
    """Answer every line of `questions` until the reader of the answers is gone."""
    for _ in questions:
        try:
            answer = facts()
        except Exception as error:
            answer = {"failed": f"{type(error).__name__}: {error}"}
        try:
            print(json.dumps(answer), file=answers, flush=True)
        except BrokenPipeError:
            return


def main(address: str) -> int:
    """Connect and answer; return the exit code."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # keep Ray's own output out of the answers
    try:
        init_quietly(address)
    except ConnectionError as error:
        print(json.dumps({"failed": str(error)}), file=answers, flush=True)
        return 1
    try:
        serve(sys.stdin, answers, cluster_facts)
    finally:
        shutdown()
    return 0


if __name__ == "__main__":
    try:
        code = main(sys.argv[1])
    except KeyboardInterrupt:  # Ctrl-C also reaches this process
        code = 130
    sys.exit(code)
