"""Side-by-side measurements: syncline, Ray and the best other peer, alternating in one run.

`python -m bench` measures; `bench.__main__` has its options. The files in the order in which a measurement flows through them:

- `rows.py`      what is measured: rows, contenders, metrics and targets, all of it data
- `programs/`    the small programs that the contenders run; each writes its numbers to a JSON file
- `cluster.py`   the Ray cluster that the rows of the group "cluster" share
- `measure.py`   runs one program in fresh processes under a time limit and leaves nothing behind
- `schedule.py`  the order of the measurements (pure)
- `summary.py`   medians, ratios, verdicts (pure)
- `table.py`     the table for people
- `machine.py`   facts about the machine and the versions, for the JSON file

Not covered: data pipelines and tuning.
"""
