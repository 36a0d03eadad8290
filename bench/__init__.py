"""Benchmarks: syncline, Ray and the best other library, alternating in one run.

`python -m bench` measures; `bench.__main__` lists its options. Files in the order in which a
measurement flows through them:

- `rows/`        definitions of the rows: contenders, metrics and targets
- `programs/`    the programs that contenders run; each writes its values to a JSON file
- `inputs.py`    input files of the programs, created once per run
- `cluster.py`   the Ray cluster that all rows of the group "cluster" share
- `schedule.py`  the order of the measurements (pure)
- `measure.py`   runs one program in fresh processes with a time limit, and removes its processes
- `memory.py`    peak memory of a program's processes
- `summary.py`   medians, ratios, verdicts (pure)
- `table.py`     the printed tables (pure)
- `machine.py`   facts about the machine and the installed versions, for the JSON file

Two environment variables affect the groups "data", "train" and "tune". BENCH_CIFAR10 names a folder
with `train/*.parquet` (columns `image`, JPEG bytes, and `label`); without it, the sample in
`examples/data` is read several times. BENCH_SCALE multiplies the numbers of rows and trials and the
sizes of checkpoints, for a quick try.

Not covered: several machines, GPUs.
"""
