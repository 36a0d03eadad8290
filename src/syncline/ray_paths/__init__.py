"""Ray's remaining module paths: private modules that programs reach for, and small public ones.

`syncline.X` has the names of `ray.X` as far as an honest equivalent exists. A path in the table is
a module without a file; its names load on first use from the modules that define them. Public
modules that programs with type hints import are files instead: `actor`, `exceptions`,
`remote_function`, `runtime_context`, `runtime_env` and `types`.

- `table`: the paths, and where their names are defined.
- `retired`: paths and names without a counterpart, and what to use instead.
- `finder`: imports of modules of the table.
- `worker` (`ray._private.worker`), `state` (`ray._private.state`), `client` (`ray.util.client`,
  `ray.client`), `autoscaler` (`ray.autoscaler.sdk`), `utilities` (`ray._private.utils`,
  `ray._private.services` and others), `constants` (`ray._private.ray_constants`), `job_config`,
  `locations` (`ray.experimental`), `waiting` (`ray._private.test_utils`).
"""
