"""Experiment trackers and frameworks: `wandb`, `mlflow`, `comet`, `keras`.

`run_identity` finds the trial or worker that uses a tracker.
"""
