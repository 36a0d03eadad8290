"""The methods of `Dataset`, by what they are for; `dataset.py` puts them together.

Files, in the order in which a program meets them: `handle` (the plan, the context, and the one way
to execute it), `mapping` (functions on rows and batches), `columns` (select, drop, rename,
compute), `ordering` (limit, sample, repartition, shuffle, sort), `combining` (union, zip, mix,
join), `aggregating` (sum, mean, unique, groupby), `splitting`, `consuming` (rows, batches, take),
`inspecting` (schema, count, stats, explain). What they share: `functions` (user functions and what
they hold), `checks` (of arguments), `held` (blocks that exist), `schema` and `summary` (answers for
people).
"""
