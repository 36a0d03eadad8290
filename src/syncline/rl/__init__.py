"""Reinforcement learning: algorithms, environments, modules, learners.

Folders in the order of the data flow: `config` (options), `envs` (environments), `modules`
(networks, distributions, acting), `runners` (sampling), `columns` (fragments and sequences),
`episodes` (the same as objects, for programs), `connectors` (pieces between environments and
modules), `offline` (recorded episodes), `buffers` (replay), `returns` (advantages and targets),
`learners`, `plans` (schedules of sampling and learning), `algorithm` (base of `algorithms`),
`metrics`, `records` (records and videos), `older` (the API from older releases),
`callbacks`, `value_types` (observations, spaces, batches), `checkpointable` and `array_msgpack`
(state in files), `annotations`, `utilities` (functions for programs), `public_paths` (RLlib's
module paths) with `public_table`, `public_missing` and `public_retired` (their names).
"""

from syncline.rl.public_paths import install, package_attribute

install()


def __getattr__(name: str) -> object:
    return package_attribute(__name__, name)
