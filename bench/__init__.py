"""Side-by-side measurements: syncline, Ray and the best other peer, alternating in one run.

`python -m bench` measures; `bench.__main__` has its options. The files in the order in which a
measurement flows through them:

- `rows/`        what is measured: rows, contenders, metrics and targets, all of it data
- `programs/`    the small programs that the contenders run; each writes its numbers to a JSON file
- `inputs.py`    the files that programs read, made once per run
- `cluster.py`   the Ray cluster that the rows of the group "cluster" share
- `measure.py`   runs one program in fresh processes under a time limit and leaves nothing behind
- `memory.py`    the most memory that the processes of a program had
- `schedule.py`  the order of the measurements (pure)
- `summary.py`   medians, ratios, verdicts (pure)
- `table.py`     the table for people
- `machine.py`   facts about the machine and the versions, for the JSON file

Two variables change what the rows of the groups "data", "train" and "tune" measure: BENCH_CIFAR10
names a folder with `train/*.parquet` (columns `image`, JPEG bytes, and `label`; the sample in
`examples/data` if it is not set, whose images then come several times), and BENCH_SCALE multiplies
the numbers of rows and of trials, and the sizes of checkpoints, for a quick try.

Not covered: several machines, GPUs.
"""
