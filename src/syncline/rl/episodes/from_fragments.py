"""Conversion of fragments to episodes: trajectories are split into parts of episodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncline.rl.columns.fragment import Fragment
from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import Tree, map_tree
from syncline.rl.episodes.single_agent_episode import SingleAgentEpisode
from syncline.rl.value_types import AgentID, Space


@dataclass(frozen=True, kw_only=True)
class Part:
    """Steps of one episode within a trajectory of a fragment."""

    trajectory: int
    start: int
    """First step."""
    stop: int
    """Step after the last one."""
    final: int | None
    """Row of `final_obs` after the last step; None if the episode continues."""

    @property
    def num_steps(self) -> int:
        """Number of steps."""
        return self.stop - self.start


def parts_of(fragment: Fragment) -> list[Part]:
    """Return the parts of episodes in a fragment without padding, by trajectory and time."""
    done, valid = fragment.done, fragment.valid
    finals = {(int(t), int(n)): row for row, (t, n) in enumerate(fragment.final_at)}
    made = []
    for n in range(fragment.width):
        start = None
        for t in range(fragment.length):
            if valid is not None and not valid[t, n]:
                continue
            start = t if start is None else start
            last = t + 1 == fragment.length or (valid is not None and not valid[t + 1, n])
            if done[t, n] or last:
                final = finals.get((t, n)) if done[t, n] else None
                made.append(Part(trajectory=n, start=start, stop=t + 1, final=final))
                start = None
    return made


def episode_of(
    fragment: Fragment,
    part: Part,
    *,
    observation_space: Space | None = None,
    action_space: Space | None = None,
    agent_id: AgentID = None,
    module_id: str | None = None,
) -> SingleAgentEpisode:
    """Return a part as an episode of lists."""
    n, last = part.trajectory, part.stop - 1
    observations = [_row(fragment.obs, t, n) for t in range(part.start, part.stop)]
    if part.final is None:
        observations.append(_row(fragment.obs, part.stop, n))
    else:
        observations.append(map_tree(lambda leaf: leaf[part.final], fragment.final_obs))
    steps = range(part.start, part.stop)
    began = int(fragment.first_step[n]) if part.start == 0 and len(fragment.first_step) else 0
    return SingleAgentEpisode(
        observations=observations,
        observation_space=observation_space,
        actions=[_row(fragment.columns[Columns.ACTIONS], t, n) for t in steps],
        action_space=action_space,
        rewards=[float(fragment.rewards[t, n]) for t in steps],
        terminated=bool(fragment.terminated[last, n]),
        truncated=bool(fragment.truncated[last, n]),
        extra_model_outputs={
            name: [_row(column, t, n) for t in steps]
            for name, column in fragment.columns.items()
            if name != Columns.ACTIONS
        },
        t_started=began,
        len_lookback_buffer=0,
        agent_id=agent_id,
        module_id=module_id,
    )


def _row(tree: Tree, t: int, n: int) -> Tree:
    return map_tree(lambda leaf: np.asarray(leaf[t, n]), tree)
