"""Diagnosis of a training: which rank the others wait for, and why.

Files in the order in which data flows: `thread_states` (a rank's watch: how its training thread
spends the time), `collective_calls` (calls of all ranks compared), `rank_health` (a verdict from
both, in the controller). The verdict itself is `runs.verdicts.Verdict`. All but `thread_states` is
pure.
"""
