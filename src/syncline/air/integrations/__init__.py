"""Experiment trackers and frameworks under their older address: `wandb`, `mlflow`, `comet`,
`keras`. Each is imported by its module.
"""
