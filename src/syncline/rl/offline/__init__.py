"""Offline data: recording of episodes, and batches of recorded data.

Files: `recorder` (writes episodes to files), `prelearner` (converts recorded rows to steps),
`offline_data` (reads batches from files), `returns_to_go` (returns of episodes), `filesystems`
(filesystems by name).
"""
