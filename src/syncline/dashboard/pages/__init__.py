"""Pages of the dashboard. A page builds its elements once, in its constructor, and changes them in
`update()`; it holds no state of other visitors.

Files: `routes` (URLs), `run_list_page`, `compare_page` (with `rl_comparison`), `run_actions`
(changes of runs), `run_page` (frame of a run) with `run_header` and `run_view` (its interface to
the pages), then the pages by kind of run: `training_page` with `curves_panel`, `media_panel`,
`actions_panel` and `logs_panel`, `rl_page` (both with `common_panels`), `dataset_page`,
`tuning_page` with `tuning_figures`, `tuning_table` and `tuning_trial`, `serving_page` with
`serving_record` (the record as panels read it), `serving_application`, `serving_deployment` and
`serving_panels`. `serving_list_page` and `cluster_page` show many runs.
"""
