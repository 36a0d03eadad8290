"""A process that looks at a cluster for the dashboard: `python -m syncline.dashboard.cluster_probe
ADDRESS`.

Ray ends a process whose cluster is gone, so the dashboard does not connect by itself. This process
connects, and answers each line on its standard input with a line of JSON on its standard output:
what `engines.described` takes, or {"failed": "why"}. It ends with its input.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import IO, Any

import syncline
from syncline.core import api
from syncline.dashboard.engines import ROWS

CONNECTING = (ConnectionError, TimeoutError, ModuleNotFoundError, RuntimeError, ValueError, OSError)
"""What `init` raises where there is no cluster to be joined."""


def cluster_facts() -> dict[str, Any]:
    """What the cluster says now."""
    return {
        "nodes": api.nodes(),
        "resources": {"total": api.cluster_resources(), "available": api.available_resources()},
        "actors": asdict(api.actors(ROWS)),
        "tasks": asdict(api.tasks(ROWS)),
    }


def serve(questions: Iterable[str], answers: IO[str], facts: Callable[[], dict[str, Any]]) -> None:
    """Answer every line of `questions`; ends when the reader of the answers is gone."""
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
    """Connect and answer; the exit code."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what Ray prints is no answer
    try:
        syncline.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except CONNECTING as error:
        print(json.dumps({"failed": str(error)}), file=answers, flush=True)
        return 1
    try:
        serve(sys.stdin, answers, cluster_facts)
    finally:
        syncline.shutdown()
    return 0


if __name__ == "__main__":
    try:
        code = main(sys.argv[1])
    except KeyboardInterrupt:  # Ctrl-C ends the dashboard and this together
        code = 130
    sys.exit(code)
