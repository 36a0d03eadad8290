"""Storage of a run: files, checkpoints, and their copies on other machines.

Files, in the order in which data flows: `probe` (check that every node sees the run directory),
`context` (staging and commits of checkpoints), `download_locks` (one download per machine).
"""
