"""Algorithms, one folder each: options and training step in one file, the loss in `torch/`.

Folders: `ppo`, `a2c`, `impala`, `appo`, `dqn`, `sac`, `td3`, `tqc`, `bc`, `marwil`, `cql`, `iql`,
`es`, `ars`, `qmix`, `mappo`, `alpha_zero`, `dreamerv3`, `mbpo`. Also: `registry` (algorithms by
name) and `retired` (names from older releases).
"""

from syncline.rl.public_paths import package_attribute


def __getattr__(name: str) -> object:
    return package_attribute(__name__, name)
