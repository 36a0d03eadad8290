"""Env runners: sample fragments with modules in environments.

Files: `exploration` (noise from older releases), `noise` (random numbers of each environment),
`actions` (conversion of actions from modules to environments), `sample` (the result of sampling),
`sampling_results` (metrics of samples), `episode_sampling` (`sample()` for programs),
`single_agent_env_runner` (the loop), `external_env_runner` (external simulators),
`episode_tracker` (episodes as objects) and `connections` (connectors before and after the module),
`multi_agent_env_runner`, `multi_agent_tracker` and `trajectory` (several agents),
`remote_env_runner` (the actor), `shared_memory` (transfer of arrays), `runner_handle` (calls, and
exact restarts), `hang_detector` (time limits of calls) and `group` (local and remote runners),
`threads` (number of torch threads).
"""
