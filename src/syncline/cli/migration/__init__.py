"""Conversion of programs written for Ray, for `syncline migrate`. Needs libcst.

Files in the order in which a program flows through them: `files` (search, read and write programs
and notebooks), `rewrite` (edits and notes of one module), `surface` (the names that syncline has),
`remedies` (advice for the names that it lacks).

Covered: names imported from Ray and what is reached through them, in code, in string annotations
and in strings that name modules. Not covered: attributes of objects (`dataset.some_method`), names
built at run time, and files in other languages.
"""
