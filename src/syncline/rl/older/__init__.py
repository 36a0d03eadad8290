"""The API of older releases, implemented with the current modules and learners.

Files: `policy` (the policy interface of a module), `policy_spec`, `sample_batch` (rows by column),
`view_requirement`, `model_config` (options of networks), `registered` (names of classes),
`preprocessors`, `torch` (networks and distributions), `trainers` (classes and dictionaries),
`results` (keys of results).
"""
