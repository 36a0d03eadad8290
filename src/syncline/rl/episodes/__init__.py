"""Episodes as objects, for programs: callbacks, connectors, recordings, offline data.

The built-in path samples fragments and does not use them. Files: `items` (nested values of steps),
`older_values` (attributes from older releases), `lookback` (a sequence with values from before its
start), `episode_values`, `single_agent_episode`, `multi_agent_episode`, `episode_type` (either of
them), `multi_agent_getters` (values of several agents by step), `multi_agent_parts` (cutting and
joining), and `from_fragments` (episodes from sampled fragments).
"""
