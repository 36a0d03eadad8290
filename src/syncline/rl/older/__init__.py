"""The API of older releases, on the present modules and learners.

Files: `policy` (a module as a policy), `model_config` (options of networks), `registered` (names of
classes), `preprocessors`, `view_requirement`, `torch` (networks and distributions).
"""
