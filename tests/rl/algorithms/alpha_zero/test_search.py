"""Visit counts of the batched search against a naive one, on a hand-made game."""

import math

import numpy as np
import pytest

from syncline.rl.algorithms.alpha_zero.ranked_rewards import RankedRewards, ranked
from syncline.rl.algorithms.alpha_zero.search import Search, SearchOptions, tree_policy
from syncline.rl.algorithms.alpha_zero.simulator import Position

ACTIONS = 3


class HandMadeGame:
    """A state is the tuple of actions so far; everything else follows from it by fixed rules."""

    num_actions = ACTIONS

    def position(self, state):
        legal = [not (len(state) % 3 == 1 and a == 0) for a in range(ACTIONS)]
        over = len(state) >= 4 or state[-2:] == (2, 2)
        player = sum(state) % 2  # who acts is not simply the other one
        return Position(
            state=state,
            obs=state,
            mask=np.array(legal),
            player=player,
            reward=self.reward(state),
            is_over=over,
        )

    @staticmethod
    def reward(state):
        return 0.0 if not state else math.sin(7.0 * len(state) + 3.0 * state[-1])

    def step(self, position, action):
        after = self.position((*position.state, action))
        if not after.is_over:
            return after
        return Position(  # at the end nobody is to act: the mover stays
            state=None,
            obs=after.obs,
            mask=after.mask,
            player=position.player,
            reward=after.reward,
            is_over=True,
        )


def network(state):
    """Return priors and value of a state."""
    scores = np.array([math.cos(5.0 * len(state) + a + sum(state)) for a in range(ACTIONS)])
    legal = HandMadeGame().position(state).mask
    priors = np.where(legal, np.exp(scores), 0.0)
    return priors / priors.sum(), math.sin(len(state) + 2.0 * sum(state))


def evaluate(positions):
    found = [network(position.obs) for position in positions]
    return np.array([p for p, _ in found]), np.array([v for _, v in found])


class Node:
    """A node of the naive search."""

    def __init__(self, position):
        self.position = position
        self.priors, self.value = network(position.obs)
        self.visits = [0] * ACTIONS
        self.sums = [0.0] * ACTIONS
        self.children = [None] * ACTIONS


def naive_visits(root_state, simulations, puct, gamma):
    game = HandMadeGame()
    root = Node(game.position(root_state))

    def simulate(node):
        """Return the value of a simulation for the player of the node."""
        if node.position.is_over:
            return 0.0
        best, choice = -math.inf, None
        for a in range(ACTIONS):
            if not node.position.mask[a]:
                continue
            q = node.sums[a] / node.visits[a] if node.visits[a] else 0.0
            u = puct * node.priors[a] * math.sqrt(1 + sum(node.visits)) / (1 + node.visits[a])
            if q + u > best:
                best, choice = q + u, a
        child = node.children[choice]
        if child is None:
            child = node.children[choice] = Node(game.step(node.position, choice))
            value = 0.0 if child.position.is_over else child.value
        else:
            value = simulate(child)
        same = child.position.player == node.position.player
        value = child.position.reward + gamma * (value if same else -value)
        node.visits[choice] += 1
        node.sums[choice] += value
        return value

    for _ in range(simulations):
        simulate(root)
    return root.visits, [s / max(n, 1) for s, n in zip(root.sums, root.visits, strict=True)]


def search(simulations, puct=1.3, gamma=0.9, **options):
    return Search(
        HandMadeGame(),
        evaluate,
        SearchOptions(simulations=simulations, puct=puct, gamma=gamma, **options),
    )


@pytest.mark.parametrize("simulations", [1, 2, 7, 60, 300])
@pytest.mark.parametrize("puct", [0.2, 1.3, 8.0])
def test_visits_and_values_are_those_of_the_naive_search(simulations, puct):
    states = [(), (1,), (0, 2), (2, 0, 1)]
    batched = search(simulations, puct)
    visits = batched.run([HandMadeGame().position(state) for state in states])
    for row, state in enumerate(states):
        expected, values = naive_visits(state, simulations, puct, 0.9)
        assert visits[row].tolist() == expected
        np.testing.assert_allclose(batched.root_values()[row], values, atol=1e-12)
    assert (visits.sum(1) == simulations).all()


def test_three_simulations_by_hand():
    """Priors .5, .3, .2 and leaf values -1, 1, 0 for the opponent; c = 1."""

    class Game:
        num_actions = 3

        def step(self, position, action):
            return Position(state=action, obs=action, mask=np.ones(3, bool), player="them")

    def fixed(positions):
        values = {None: 0.0, 0: -1.0, 1: 1.0, 2: 0.0}
        return (
            np.array([[0.5, 0.3, 0.2]] * len(positions)),
            np.array([values[each.obs] for each in positions]),
        )

    root = Position(state=None, obs=None, mask=np.ones(3, bool), player="we")
    made = Search(Game(), fixed, SearchOptions(simulations=1, puct=1.0))
    assert made.run([root]).tolist() == [[1, 0, 0]]  # the largest prior
    assert made.root_values().tolist() == [[1.0, 0.0, 0.0]]  # what the opponent loses
    # Then Q + U is 1 + .5 sqrt(2) / 2 = 1.35 for the first, .3 sqrt(2) for the second one.
    made = Search(Game(), fixed, SearchOptions(simulations=2, puct=1.0))
    assert made.run([root]).tolist() == [[2, 0, 0]]


def test_network_evaluates_the_new_positions_of_all_games_in_one_call():
    sizes = []

    def counting(positions):
        sizes.append(len(positions))
        return evaluate(positions)

    made = Search(HandMadeGame(), counting, SearchOptions(simulations=10, puct=1.0))
    made.run([HandMadeGame().position(())] * 6)
    assert sizes[0] == 6
    assert len(sizes) <= 11
    assert max(sizes) == 6


def test_noise_at_the_root_is_of_the_given_share_and_on_allowed_actions_only():
    made = search(1, noise_share=0.25, noise_concentration=1.0)
    roots = [HandMadeGame().position((1,))] * 2000
    made.run(roots, [np.random.default_rng(n) for n in range(len(roots))])
    priors = made._priors[:, 0]
    np.testing.assert_allclose(priors.sum(1), 1.0)
    assert (priors[:, 0] == 0).all()  # not allowed there
    mean = 0.75 * network((1,))[0] + 0.25 * np.array([0, 0.5, 0.5])
    np.testing.assert_allclose(priors.mean(0), mean, atol=0.01)


def test_tree_policy_is_a_power_of_the_visits():
    policy = tree_policy(np.array([[1, 3, 0], [2, 2, 4]]), exponent=2.0)
    np.testing.assert_allclose(policy, [[0.1, 0.9, 0.0], [1 / 6, 1 / 6, 2 / 3]])


def test_ranked_rewards_compare_with_the_percentile_of_recent_returns():
    rewards = RankedRewards(percentile=75, length=4)
    assert ranked(-5.0, rewards.threshold()) == 1.0
    rewards.add([100.0, 1.0, 2.0, 3.0, 4.0])  # the first one is forgotten
    assert rewards.threshold() == 3.25
    assert ranked(3.0, rewards.threshold()) == -1.0
    assert ranked(3.25, rewards.threshold()) == 1.0
