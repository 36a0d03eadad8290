"""Callbacks: hooks of programs into sampling, training, evaluation and checkpoints.

`callbacks` has the class that programs derive from, `callback_list` calls its hooks.
"""
