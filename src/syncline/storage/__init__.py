"""Files and directories on local and remote filesystems, shared by runs, data, train and tune.

Files, in the order in which data flows: `run_names` (the check that names of runs pass), `retries`
(policy and classification of transient errors) and `filesystem` (resolve, read, write, list, copy,
delete). Importing this package does not load pyarrow; functions that need it load it on first use.
"""
