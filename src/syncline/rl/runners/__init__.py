"""Env runners: from modules and environments to fragments.

Files: `noise` (random numbers of each environment), `actions` (from modules' actions to
environments'), `sample` (what a runner hands over), `single_agent_env_runner` (the loop), `group`
(runners in this process and others).

Also: `episode_tracker`, `multi_agent_env_runner`, `remote_env_runner`, `threads`, `trajectory`.
"""
