"""Connectors from environments to modules.

Files: `items` (default pieces: observations, states, time dimension, modules, batches),
`preprocessors` (pieces that change the newest observation), `mean_std_filter` (standardization),
`frame_stacking` (the last observations side by side).
"""
