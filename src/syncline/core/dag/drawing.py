"""`plot`: a picture of a graph, drawn by Graphviz's program `dot`."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from syncline.core import host
from syncline.core.dag.nodes import DAGNode

_DEFAULT_FORMAT = "png"


def plot(dag: DAGNode, to_file: str | None = None) -> Any:
    """Draw the graph that ends in a node; in a notebook, return the picture.

    Args:
        dag: The node.
        to_file: Path of the picture, whose ending is its format: png, svg, pdf, and others; `dot`
            is the description of the graph itself, and needs no Graphviz. None for a picture in a
            notebook only.

    Raises:
        TypeError: `dag` is not a node.
        ImportError: Graphviz is not installed.
        ValueError: Graphviz does not know the format.
    """
    with tempfile.TemporaryDirectory(prefix="syncline-dag-") as scratch:
        path = Path(to_file) if to_file is not None else Path(scratch, "dag.png")
        _write(description(dag), path)
        if host.is_interactive(None) and "IPython" in sys.modules and path.suffix == ".png":
            return sys.modules["IPython"].display.Image(data=path.read_bytes())
    return None


def description(dag: DAGNode) -> str:
    """Return the graph in the language of `dot`: an edge from each node to those that need it."""
    if not isinstance(dag, DAGNode):
        raise TypeError(f"`dag={dag!r}` is not a node of a graph: pass the result of `bind`")
    nodes = list(dag._in_order())
    numbers = {node.get_stable_uuid(): number for number, node in enumerate(nodes)}
    lines = ["digraph {", "  rankdir=LR;"]
    for number, node in enumerate(nodes):
        text = repr(node).replace("\\", "\\\\").replace('"', '\\"')
        lines.append(f'  n{number} [label="{text}"];')
    for number, node in enumerate(nodes):
        needed = dict.fromkeys(numbers[each.get_stable_uuid()] for each in node._needs)
        lines += [f"  n{other} -> n{number};" for other in needed]
    return "\n".join([*lines, "}", ""])


def _write(text: str, path: Path) -> None:
    kind = path.suffix[1:] or _DEFAULT_FORMAT
    if kind == "dot":
        path.write_text(text)
        return
    program = shutil.which("dot")
    if program is None:
        raise ImportError(
            "plot needs Graphviz, whose program `dot` is not in PATH: install it "
            "(`apt-get install graphviz`), or write the description with `to_file='graph.dot'`"
        )
    done = subprocess.run(
        [program, f"-T{kind}", "-o", str(path)],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ValueError(f"Graphviz cannot write {str(path)!r}: {done.stderr.strip()}")
