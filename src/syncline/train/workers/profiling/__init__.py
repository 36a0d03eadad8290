"""Profiles of a training worker, taken in its process while it trains.

Files, in the order in which a profile is taken: `profile_request` (kind and duration, checked),
`profiler` (one profile at a time, from the request to the file in the run directory), and one file
for each kind: `cpu_profile` (py-spy), `memory_profile` (memray), `torch_trace` (`torch.profiler`).
Requests come from `syncline.train.controller.live_actions`.
"""
