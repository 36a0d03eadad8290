"""Configuration of algorithms.

Files: `section` (how options are declared and set), `environment`, `sampling`, `learning`,
`evaluation`, `offline` and `running` (the options by topic), `algorithm_config` (the class that
programs use), `module_change` (modules that are added and removed), `exploration_options` and
`older` (names of earlier releases), `schedule` (values that change with the number of steps).
"""
