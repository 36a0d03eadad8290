"""Columns of samples: names, fragments, sequences.

Files: `fragment`, `trees`.
"""
