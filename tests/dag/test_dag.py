"""The public names of `syncline.dag`; the behaviour is in the conformance suite."""

import importlib

from syncline import dag


def test_modules_of_ray_have_the_names() -> None:
    for module, name in (
        ("class_node", "ClassMethodNode"),
        ("dag_node", "DAGNode"),
        ("function_node", "FunctionNode"),
        ("input_node", "InputNode"),
        ("output_node", "MultiOutputNode"),
    ):
        found = getattr(importlib.import_module(f"syncline.dag.{module}"), name)
        assert found is getattr(dag, name)
