"""Graphs of tasks and actor calls that are bound first and executed later: `f.bind(x).execute()`.

- `nodes`: the nodes, and their execution; `bind` of remote functions, actor classes and methods
  creates them.
- `nested_nodes`: nodes inside arguments, such as lists and objects.
- `compiled`: the result of `experimental_compile`, which executes the graph's calls one by one.
- `context`: `DAGContext`, settings of Ray's channels, which have no effect.
- `drawing`: `plot`, a picture of a graph.

Serve's applications have a `bind` of their own.
"""
