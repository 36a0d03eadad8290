"""The command `syncline serve`: run, deploy, inspect and end applications.

Files in the order in which a command line flows through them: `command` (the group), `running`
(finds the program or cluster that runs serve), `sources` (the applications that a command names),
`run` (`run` and `start`, which hold serve in their process), `reload` (deploys again after a
change), `background` (the same in a process without a terminal), `deploy` (`deploy`, `shutdown`,
`build`, `config`), `status` (`status`, `controller-health`).
"""
