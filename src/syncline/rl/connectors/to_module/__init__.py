"""Connectors from environments to modules.

Files: `items` (default connectors: observations, states, time dimension, modules, batches),
`preprocessors` (connectors that change the newest observation), `mean_std_filter`
(standardization), `frame_stacking` (the last observations, concatenated).
"""
