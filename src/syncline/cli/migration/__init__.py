"""Rewriting programs written for Ray: what `syncline migrate` does to a file. Needs libcst, from
the extra `cli`.

Files, in the order in which a program flows through them: `files` (which files, reading and writing
them), `notebooks` (their code cells as one module), `examine` (one module: what to change and what
to say, over `imports`, `references` and `strings`), `surface` (which names syncline has),
`remedies` (what to do where it has none). Pure but for `files`, and for `surface`, which imports
syncline's own modules.

Covered: names that a program imports from Ray and what it reaches through them, in code, in string
annotations and in strings that name modules. Not covered: attributes of objects
(`dataset.some_method`), names built at run time, and Ray in other languages' files.
"""
