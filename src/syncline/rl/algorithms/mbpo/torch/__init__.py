"""The dynamics model of MBPO.

Files: `ensemble` (the networks), `dynamics` (training and predictions).
"""
