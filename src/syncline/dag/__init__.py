"""Graphs of tasks and actor calls: `f.bind(x)` creates a node, and `node.execute()` runs the graph.

The code is in `syncline.core.dag`.
"""

from syncline.core.dag.compiled import CompiledDAG
from syncline.core.dag.context import DAGContext
from syncline.core.dag.drawing import plot
from syncline.core.dag.nodes import (
    ClassMethodNode,
    ClassNode,
    DAGInputData,
    DAGNode,
    FunctionNode,
    InputAttributeNode,
    InputNode,
    MultiOutputNode,
)

__all__ = [
    "ClassMethodNode",
    "ClassNode",
    "CompiledDAG",
    "DAGContext",
    "DAGInputData",
    "DAGNode",
    "FunctionNode",
    "InputAttributeNode",
    "InputNode",
    "MultiOutputNode",
    "plot",
]
