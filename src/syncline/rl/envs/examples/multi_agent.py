"""Multi-agent environments made of copies of single-agent environments."""

from __future__ import annotations

from syncline.rl.envs.examples.actions import NestedSpaceRepeatAfterMeEnv
from syncline.rl.envs.examples.cart_poles import CartPoleCrashing, CartPoleWithDictObservationSpace
from syncline.rl.envs.examples.memory import StatelessCartPole
from syncline.rl.envs.multi_agent_env import make_multi_agent

MultiAgentCartPole = make_multi_agent("CartPole-v1")
MultiAgentMountainCar = make_multi_agent("MountainCarContinuous-v0")
MultiAgentPendulum = make_multi_agent("Pendulum-v1")
MultiAgentStatelessCartPole = make_multi_agent(StatelessCartPole)
MultiAgentCartPoleWithDictObservationSpace = make_multi_agent(CartPoleWithDictObservationSpace)
MultiAgentNestedSpaceRepeatAfterMeEnv = make_multi_agent(NestedSpaceRepeatAfterMeEnv)
MultiAgentCartPoleCrashing = make_multi_agent(CartPoleCrashing)
