"""Columns of samples: names, fragments, sequences."""
