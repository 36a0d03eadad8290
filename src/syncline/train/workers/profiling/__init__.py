"""Profiles of a training worker, taken in its process while it trains.

Files, in the order in which a profile is taken: `profile_request` (kind and duration, checked),
`profiler` (takes one profile at a time and writes it to the run directory), and one file per kind:
`cpu_profile` (py-spy), `memory_profile` (memray), `torch_trace` (`torch.profiler`). Requests come
from `syncline.train.controller.live_actions`.
"""
