"""Columnar data: blocks are Arrow tables; everything here works on them in one process, without an
engine.

Files, from the bottom up: `tensors` (ndarrays and objects as Arrow columns), `columns` (one column:
Python values, ndarrays, Arrow), `datatype` (types as programs name them), `schemas` (promotion of
types), `frames` (pandas), `block` (rows and batches to tables and back), `kernels/` (sort,
partition, group, join), `expressions/` (computations on columns as data), `aggregate/`
(aggregators), `preview` (columns and rows as a table for people).
"""
