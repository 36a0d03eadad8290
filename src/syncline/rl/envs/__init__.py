"""Environments: creation, vectorization, checks, states, and the multi-agent interface.

Files in the order of use: `env_context` (configuration), `registry` (lookup of a program's `env`),
`older_gym` (environments of gym before 0.26), `env_errors`, `checks` (values against spaces),
`env_guard` (checks, errors and restarts of one environment), `env_state` (exact states);
`vector` with `vector_step`, `sync_vector`, `async_vector` and `native_vector` (many environments of
one agent); `multi_agent_env`, `multi_agent_guard`, `multi_agent_vector` and `pettingzoo` (several
agents); `external` (simulators that connect to the algorithm); `examples` (small environments).

Also: `space_serialization`.
"""
