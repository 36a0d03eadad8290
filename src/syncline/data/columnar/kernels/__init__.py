"""Kernels: operations on whole tables as pure functions, without an engine, threads or state.

Files: `keys` (key columns: checks, comparable form, row hashes), `sort` (sorting, boundaries,
merging), `partition` (rows to partitions by hash, range or chance; shuffles), `mapped_memory`
(page tables of mapped columns), `permute` (permutations of rows of a fixed size), `group` (rows of
equal keys, distinct rows), `join` (joins; zip).
"""
