"""Small environments for tests and examples.

Files: `cart_poles` (variants of CartPole), `memory` (tasks that need memory), `mazes` (corridors
and grids), `image_grid` (a goal in an image), `random_env` (random values of any spaces), `actions`
(masked, correlated and nested actions), `multi_agent` (copies of single-agent
environments), `games` (two players).
"""
