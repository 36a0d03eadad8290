"""The engine for many machines: Ray Core's tasks, actors, objects and placement groups under
syncline's names, one to one.

In the order in which a program meets them: `start` (finding the cluster and connecting), `engine`
(the `Engine`), `arguments` (our options in Ray's words), `feasible` (what the cluster can never
give), `handles` (references that carry Ray's own), `tasks` and `actors` (what runs in Ray's
workers), `groups` (placement groups), `streams` (items as they come), `facts` (who and where the
running code is), `errors` (Ray's errors as ours, and caught as either), `pickles` (classes that
travel by value stay the same), `timeline` (what ran where and when). For `start`: `head` and
`probe` (who answers at an address), `tokens` and `token_places`, `versions`, and `watch` (whether
it still answers). `client` is the engine through Ray Client, and `relay` its generators. Nothing
else in syncline imports `ray`.

Values travel as Ray serialises them: cloudpickle, with arrays and Arrow buffers in shared memory.
What Ray cannot do is listed in docs/engines.md.
"""
