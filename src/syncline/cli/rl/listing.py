"""`rl list`: the algorithms, with a line each."""

from __future__ import annotations

import click

from syncline.cli.output import CommandError, console, json_option, print_json, table
from syncline.suggestions import did_you_mean
from syncline.tune.error import TuneError
from syncline.tune.registry import get_trainable_cls, installed_trainables

DESCRIPTIONS = {
    "PPO": "proximal policy optimization; a good first choice, any actions",
    "A2C": "advantage actor-critic, one step per batch; any actions",
    "APPO": "PPO with runners that never wait; for slow environments",
    "IMPALA": "V-trace actor-critic with runners that never wait; many runners",
    "DQN": "Q-learning with replay, Rainbow by options; discrete actions",
    "SAC": "soft actor-critic with replay; continuous actions, few samples",
    "TD3": "deterministic policy gradients with replay; continuous actions",
    "DDPG": "TD3 without its three additions; continuous actions",
    "BC": "behavior cloning; from recorded episodes",
    "MARWIL": "imitation weighted by advantages; from recorded episodes",
    "CQL": "conservative SAC; from recorded episodes",
    "IQL": "implicit Q-learning; from recorded episodes",
    "ES": "evolution strategies; many CPUs, no gradients",
    "ARS": "augmented random search; linear policies, no gradients",
    "AlphaZero": "Monte Carlo tree search with a network; environments with states",
    "DreamerV3": "learns a world model and trains in imagination; pixels, few samples",
    "MBPO": "SAC on an ensemble of models; continuous actions, fewest samples",
    "MAPPO": "PPO with a central critic; several agents",
    "QMIX": "monotonic mixing of the agents' values; cooperating agents",
    "VDN": "sum of the agents' values; cooperating agents",
    "TQC": "SAC with truncated quantile critics; continuous actions",
}
"""A line for each algorithm, in the order of the list."""


def algorithm_class(name: str) -> type:
    """Return the class of an algorithm.

    Raises:
        CommandError: There is none of that name; the message has the nearest one.
    """
    try:
        return get_trainable_cls(name)
    except TuneError:
        known = algorithm_names()
        raise CommandError(
            f"There is no algorithm {name!r}.{did_you_mean(name, known)} Algorithms: "
            f"{', '.join(known)}."
        ) from None


def algorithm_names() -> list[str]:
    """Return the names of the algorithms, without older names that stand for others."""
    installed = installed_trainables()
    return [name for name in DESCRIPTIONS if name in installed]


@click.command(name="list")
@json_option
def list_command(as_json: bool) -> None:
    """List the algorithms, with a line each."""
    found = {name: DESCRIPTIONS[name] for name in algorithm_names()}
    if as_json:
        print_json({"algorithms": found})
        return
    rows = list(found.items())
    console().print(table(("algorithm", "what it does"), rows, folding=("what it does",)))
