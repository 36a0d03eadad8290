"""RLlib's own module paths: `syncline.rllib.X` has the names of `ray.rllib.X`.

The code is in `syncline.rl`; the table is `syncline.rl.public_paths`.
"""

from syncline.rl.public_paths import install, package_attribute

install()


def __getattr__(name: str) -> object:
    return package_attribute(__name__, name)
