"""The module and the losses of SAC."""
