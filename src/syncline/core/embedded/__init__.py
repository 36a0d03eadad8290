"""The engine of one machine: worker processes under a hub in the driver's process.

Files, in the order in which a task passes them:

- `launch`: start of an engine, perhaps after an `early_start` of its fork server; `start`:
  construction and end of all parts in the driver.
- `engine`: API calls become messages and requests.
- `messages`: all messages and values; `segments`, `object_store`: large values in shared memory.
- `hub_connection`: a process's connection to the hub; `channel`: messages over a socket;
  `reactor`, `shared_reactor`: event loop and its sharing among threads; `interrupts`: Ctrl-C.
- `hub`: message handlers; `hub_core`, `hub_records`: its state; `object_table`, `task_table`,
  `actor_table`, `group_table`: its tables; `hub_requests`: operations on request, with
  `hub_state`: rows of the state API.
- `scheduler`: placement, a pure state machine; `scheduler_state`, `resource_pools`, `instructions`:
  its state and results; `actor_state_machine`: the lifecycle of an actor.
- `session_directories`, `worker_processes`, `fork_server_messages`, `fork_server_process`,
  `fork_server`: files and worker processes of a session; `process_server`: the loop of fork
  servers; `program_server`: the one that forks programs for the launcher; `exit_status`: reasons
  of their ends; `program_register`: CPUs and GPUs that other programs of the user hold.
- `worker`: set-up of a worker process; `package_worker`: of one with packages of its own;
  `executor`, `actor_executor`, `invocation`: user code in it.
- `worker_output`, `log_display`: log files and the driver's terminal; `line_deduplicator`: repeated
  lines; `terminal_rows`: progress bars drawn in place.
- `stack_dump`: worker stacks; `process_memory`: the file with which a process answers.
- `child_processes`: processes that user code starts.
"""
