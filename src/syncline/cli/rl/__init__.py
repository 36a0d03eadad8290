"""Commands of reinforcement learning.

Files: `command` (the group), `listing` (algorithms), `experiment` (what to train, from options and
files), `stopping` (when it ends), `train` (the loop), `progress` (snapshots, their panel and
lines), `evaluate`, `example`.
"""
