"""Operations on whole tables: pure functions, without an engine, threads or state.

Files: `keys` (columns as keys: what may be one, and in which form), `hashing` (one number per row
that is the same in every process), `partition` (rows to partitions, by hash, range or chance),
`sort` (sorting, boundaries, merging), `group` (rows of equal keys), `join`, `combine` (zip,
permutation, distinct).
"""
