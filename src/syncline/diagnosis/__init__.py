"""Diagnosis of a training: which rank the others wait for, and why.

Files in the order in which data flows: `thread_states` (on a rank: how its training thread spends
the time), `torch_flight_recorder` and `call_log` (on a rank: its recent collective calls),
`host_links` (on a rank: its connections to other hosts), `observation` (all of them, as a rank
sends them), `collective_calls` (calls of all ranks compared; pure), `host_network` (round-trip
times between hosts compared; pure), `clock_offset` (clocks of other nodes), `rank_health`
(verdicts; pure), `rank_diagnosis` (feeds it and passes its verdicts on; the base of the classes in
the controller of a trainer and in the launcher).
The verdict itself is `runs.verdicts.Verdict`.
"""
