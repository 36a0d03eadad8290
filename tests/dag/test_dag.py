"""The public names of `syncline.dag`; the behaviour is in the conformance suite."""

import importlib
import os
from pathlib import Path

import pytest

import syncline
from syncline import dag


def test_modules_of_ray_have_the_names() -> None:
    for module, name in (
        ("class_node", "ClassMethodNode"),
        ("dag_node", "DAGNode"),
        ("function_node", "FunctionNode"),
        ("input_node", "InputNode"),
        ("output_node", "MultiOutputNode"),
        ("context", "DAGContext"),
        ("vis_utils", "plot"),
    ):
        found = getattr(importlib.import_module(f"syncline.dag.{module}"), name)
        assert found is getattr(dag, name)


def test_settings_are_those_of_the_process() -> None:
    assert dag.DAGContext.get_current() is dag.DAGContext.get_current()
    assert dag.DAGContext.get_current().buffer_size_bytes == 1_000_000
    with pytest.raises(ValueError, match="longer than `get_timeout=10`"):
        dag.DAGContext(read_iteration_timeout=11)


@syncline.remote
def add(x, y):
    return x + y


def bound() -> dag.DAGNode:
    with dag.InputNode() as value:
        first = add.bind(value[0], 1)
        return add.bind(first, first)


def test_description_has_each_node_once_and_its_inputs(tmp_path: Path) -> None:
    assert dag.plot(bound(), str(tmp_path / "graph.dot")) is None
    lines = (tmp_path / "graph.dot").read_text().splitlines()
    assert [line.split("label=")[1] for line in lines if "label" in line] == [
        '"InputNode()"];',
        '"InputAttributeNode(0)"];',
        '"FunctionNode(add)"];',
        '"FunctionNode(add)"];',
    ]
    assert [line.strip() for line in lines if "->" in line] == [
        "n0 -> n1;",
        "n1 -> n2;",
        "n2 -> n3;",
    ]


def test_value_without_a_graph_is_refused() -> None:
    with pytest.raises(TypeError, match=r"`dag=3` is not a node of a graph: pass the result of"):
        dag.plot(3)


def test_picture_is_drawn_by_graphviz(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "dot"
    program.write_text('#!/bin/sh\ncat > "$3"; echo "$1" >> "$3"; [ "$1" != -Tno ] || exit 1\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    dag.plot(bound(), str(tmp_path / "graph.svg"))
    assert (tmp_path / "graph.svg").read_text().endswith("}\n-Tsvg\n")
    with pytest.raises(ValueError, match="cannot write"):
        dag.plot(bound(), str(tmp_path / "graph.no"))
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ImportError, match="apt-get install graphviz"):
        dag.plot(bound())
