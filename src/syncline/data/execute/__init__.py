"""Executions: from a lowered plan to blocks, streaming, in bounded memory.

What is said: `shape` (what an execution is laid out for), `stages` and `chain` (what there is to
do), `messages` (between the scheduler and its driver). What is done next: `scheduler` with
`operators/`, pure. How it is done: `start`, `program`, `execution` (what callers hold), `driver`
with `inbox` and `outbox`, `store` (blocks by number), `keeping` (what caches get of them), `jobs`
(tasks through all their attempts), `attempts`. Where tasks run: `executors`, `threads`, `pools`,
`processes`, `places`, `worker`. What a task does: `turns`, `steps/`. What people see: `stats`,
`progress`; and what is left of it on disk: `recording/`.
"""
