"""`syncline run`: torchrun's drop-in, and the warm template of `syncline warm`.

A template process imports torch once. From it are forked the agent, which is torch's elastic agent,
and every worker, which then becomes `python script.py`. The launcher itself never imports torch: it
connects the three, shows and records output, and answers `syncline stack`.

Files in the order in which a command line passes through them: `launch` (start of the template);
`options` (the command line), with `option_values` (its numbers and lists) and `slurm` (its
completion from Slurm's variables); `template` (the process that is forked), or that of `warm`,
`warm_server` and `warm_identity`; `job` (all parts together, exit code); `agent_process` and
`torch_agent` (rendezvous, ranks, restarts) with `node_exchange` (states of ranks between nodes);
`supervisor` (the launcher's loop) with `messages` (between launcher and agent) and `output`
(streams of the workers); `script_process` (a worker's process) with `rank_watch` (its watch),
`time_split` (the activities of the script) and `rank_memory` (results of both, for the launcher);
`run_observer` (the run record) with `remote_record`; `rank_verdicts` (slow ranks),
`collective_watch` (stalls), `live_actions` (requests about a running job) with `worker_stacks`,
`profile_signal`, `worker_profiles` and `profile_tools`; `failure_text` (why a job failed). Options
for experiments lead to `experiment` (a program that is compared with earlier runs), with
`experiment_process` (its process), `metric_reader` (its output), `working_tree` (its files) and
`run_deletion` (of the record and the reference to the files).
"""
