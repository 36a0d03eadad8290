"""Plans: from the calls of a program to the stages that are executed; pure functions on immutable
nodes.

Files, in the order in which a plan passes through them: `checks`, `compute` and `function_options`
(arguments of the methods that add nodes), `build` (nodes from arguments), `nodes` (the logical
plan), `properties` (rows, schema and size of a plan, without running it), `signature` (identity of
a plan), `seeds` (random numbers), `rules` (the optimizer) with `predicate_pushdown` and
`column_pruning`, `fusion` (stages that nodes share), `exchanges` (all-to-all stages), `lowering`
(plan to stages), `explain` (plans and stages as text).
"""
