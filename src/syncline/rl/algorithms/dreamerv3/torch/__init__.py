"""The networks and the losses of DreamerV3.

Files: `formulas` (symlog, two-hot, KL balance, returns), `networks` (encoder, decoder, heads),
`rssm` (the recurrent state-space model), `actor`, `dreamerv3_torch_rl_module` (all networks
together, and acting), `dreamerv3_torch_learner` (losses).
"""
