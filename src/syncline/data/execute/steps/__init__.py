"""What tasks do: heads, which make the first blocks of a task, and steps, which change a stream of
blocks.

Files: `run` (a whole chain: head, steps, the shape of what comes out), `heads`, `partition` (the
first two steps of an exchange). Steps with functions of the program's: `user` (calling them:
errors, skipping, time), `concurrent` (async ones), `rows`, `batches`, `groups`. Steps without:
`columns` (expressions, samples), `aggregate`, `write`.
"""
