"""Replay buffers.

Files: `replay_columns` (steps in rings of arrays), `priorities` (sampling in proportion to
priorities), `checkpoints` (buffers of modules, saved incrementally), `episode_buffers` (RLlib's
classes), `custom` (user-defined buffers).
"""
