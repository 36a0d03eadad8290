"""What executions leave in the run directory: which operators there are, and every few seconds
where each of them stands.

An execution of a program gets a run directory of its own once it has lasted for a moment;
executions that feed a training run lie in that run's directory, all passes of one process over a
dataset in one file. What is written is decided in the driver's thread, at its ticks; it is written
by a thread of its own, so that no block ever waits for a disk. Nothing here raises: a record that
cannot be written is a line in the debug log.

    data/NAME-TOKEN.jsonl   {"time", "dataset", "pass", "epoch", "operators": [{"name", "inputs"}], …} as a pass begins, then
                            {"time", "pass", "wall_s", "rows", …, "operators": [{"rows", "busy_s",
                            …}]} every few seconds, the last one of a pass with "ended": "finished",
                            "stopped" or "errored" (and then "error")

Not covered: local mode, where everything stands still in a debugger; and executions that tasks and
actors of a program start themselves.

Files, in the order in which data flows: `place` (what a dataset's settings say), `pace` (how much
may be written by when; pure), `lines` (what is written; pure), `recorder` (one execution),
`journals` (where its lines go), `writer` (the thread), `old_runs` (which records go).
"""
