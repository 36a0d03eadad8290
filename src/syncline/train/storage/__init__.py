"""Storage of a run: its files, its checkpoints, and copies of them on other machines.

Files, in the order in which data flows:

- `probe`: check that every node can read the run directory.
- `context`: staging and commits of checkpoints in the run directory.
- `download_locks`: one download of a checkpoint per machine.
"""
