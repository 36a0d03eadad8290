"""Callbacks: user-defined hooks into sampling, training, evaluation and checkpoints.

`callbacks` has the base class of callbacks; `callback_list` calls their hooks.
"""
