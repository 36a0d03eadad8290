"""AlphaZero: search with a network that learns from the search.

Files: `alpha_zero`, `simulator` (positions of games), `search` (the trees), `alpha_zero_env_runner`
(self-play), `ranked_rewards`, `torch`.
"""

from syncline.rl.algorithms.alpha_zero.alpha_zero import AlphaZero, AlphaZeroConfig

__all__ = ["AlphaZero", "AlphaZeroConfig"]
