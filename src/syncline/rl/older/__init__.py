"""The API of older releases, on the present modules and learners.

Files: `policy` (a module as a policy).
"""
