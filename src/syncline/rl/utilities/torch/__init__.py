"""Small functions on tensors.

Files: `tensors_torch`.
"""
