"""Tasks, actors and objects.

From a program's call to the engine: `remote` and `api` are what programs call; `lifecycle` starts
and ends the engine that `engines` loads, with the `config` that it gets; `options` (checked by
`option_checks`), `placement` and `runtime_env` say what is asked for, `plans` what is handed over,
`refs` what comes back; `engine` is the interface to what runs it all, in `embedded` on this machine
or in `inline` in this process. `serialization` (with `pickling`, `culprits`, `error_frames`,
`torch_tensors`) moves values between processes, `tracebacks` and `errors` say what went wrong,
`context` tells running code who it is, `actor_methods` finds what a call runs. `resources`,
`limits` and `gpus` count what the machine has, and `interfaces` tells its network interfaces apart.
"""
