"""The controller of a search: `events` (rules, events, instructions), `controller_view` (the
scheduler's view), `trial_table` (record of each trial), `result_checks` (required metrics,
stopper), `state` (decisions, pure), `driver` (carries them out), `experiment_files` (checkpoints
and logs in the experiment directory), `search_store` (journal, snapshot, restore), `search_record`
(record for the dashboard), `live_search` (answers while the search runs).
"""
