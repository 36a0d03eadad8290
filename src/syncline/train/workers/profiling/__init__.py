"""Profiles of a training worker, taken while it trains: what runs inside the worker's process.

Files, in the order in which a profile comes about: `request` (what is asked for, checked),
`recorder` (one profile at a time, from the question to the file in the run directory), and one file
for each kind: `cpu` (py-spy), `memory` (memray), `torch_trace` (`torch.profiler`). The question
comes from `syncline.train.controller.live_actions`.
"""
