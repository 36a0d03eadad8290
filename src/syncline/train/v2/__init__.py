"""Module paths of Ray for trainers of `syncline.train`: `jax`."""
