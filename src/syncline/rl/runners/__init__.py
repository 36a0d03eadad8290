"""Env runners: from modules and environments to fragments.

Files: `exploration` (noise from older releases), `noise` (random numbers of each environment),
`actions` (from modules' actions to environments'), `sample` (what a runner hands over),
`sampling_results` (results of samples), `episode_sampling` (`sample()` of programs),
`single_agent_env_runner` (the loop), `external_env_runner` (simulators that act themselves),
`episode_tracker` (episodes as objects) and `connections` (connectors on both sides of the module),
`multi_agent_env_runner`, `multi_agent_tracker` and `trajectory` (several agents),
`remote_env_runner` (the actor),
`shared_memory` (how it hands over arrays), `runner_handle` (its calls, and exact restarts),
`hang_detector` (limits of calls) and `group` (runners in this process and others), `threads` (how
many a runner in this process uses).
"""
