"""Tasks, actors and objects.

Files in the order in which a call flows through them:

- `remote`, `api` and `context`: the public functions and classes.
- `options` (values checked by `option_checks`), `placement`, `runtime_env`: what a call requests;
  `packages` and `package_environments`: the packages of a `runtime_env`.
- `dag`: graphs of bound calls, which `remote` creates with `bind`.
- `definitions`: functions, classes and methods with their options, as passed to the engine;
  `signatures`: their parameters, and the check of a call's arguments.
- `lifecycle`: start and end of the engine, with the configuration of `config` and `logging_config`.
- `engine`: the interface of engines, and this process's engine. Implementations: `embedded` (this
  machine), `inline` (this process), `cluster` (Ray).
- `refs`: references to values, and their reference counting; `ids`: Ray's classes of ids.
- `serialization`: values as bytes (`pickling`: the pickler; `serializability`: which part fails).
- `program_state`: arguments, logging and main module of the program, which its workers take over.
- `error_frames`: exceptions as bytes; `tracebacks`: without syncline's frames; `error_messages`:
  texts that engines share.
- `resources`, `cgroups`, `gpus`: amounts, limits and devices of this machine; `thread_limits`:
  threads of libraries in workers; `node_rows`,
  `state_rows`: nodes and other state with Ray's fields.
- `termination`: SIGTERM as a notice. `debugger`: `breakpoint()` in workers, with `remote_pdb`, and
  `debug_terminal` for the terminal.
- `control` and `control_server`: requests to running programs; `host`: sockets, network, terminal;
  `live_region`: lines that displays redraw below the output of the program.
- `state_machine`: base of the state machines; `event_loops`: end of event loops in threads;
  `random_states`: states of the global random generators.
- `worker_imports`: modules that workers are expected to import, or not to use.

Also: `labels`, `message`, `key_values` (small values that all processes share); `metrics` of user
code, `metrics_publisher` and `metrics_text`.
"""
