"""Offline data: episodes that were recorded, and batches made of recorded data.

Files: `recorder` (from runners to files), `prelearner` (from recorded rows to steps),
`offline_data` (from files to batches), `returns_to_go` (returns of episodes), `filesystems`
(where the files are).
"""
