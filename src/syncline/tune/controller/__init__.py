"""The controller of a search.

Files in the order of the data flow: `events` (rules, events, instructions), `trial_table` (record
and phase of each trial), `result_checks` (required metrics, stopper), `state` (decisions, pure),
`trial_settings` (names and resources of trials), `driver` (executes the decisions),
`short_trials` (results of short trials), `experiment_files` (checkpoints and logs in the experiment
directory), `search_store` (journal, snapshot, restore), `search_record` (record for the dashboard),
`live_search` (answers while the search runs).
"""
