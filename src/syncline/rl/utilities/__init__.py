"""Utility functions that programs import from `rllib.utils` and `rllib.evaluation`.

Files: `arrays` (NumPy), `spaces` (actions and items of spaces), `schedules`, `postprocessing`
(returns and advantages of batches), `type_names`, `checks`
(comparisons in tests, arguments of example scripts), `torch` (tensor versions).
"""
