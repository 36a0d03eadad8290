"""The engine for one machine. Files in the order in which a task flows through them:

`start` makes everything · `engine` turns calls of the API into messages · `link` carries them to
the hub (`channel`, `reactor`, `pump`) · `hub` and its tables `tasks`, `actor_table`, `groups`,
`objects`, `requests` · `scheduler` and `actors` decide, purely · `processes` and `template` make
workers, `endings` says how they ended, and `stacks` where they are · `worker`, `executor`, `calls`,
`results` run the user's code · `values`, `segments` and `store` move large values through shared
memory · `output` shows what workers print · `child_processes` lets processes that workers make take
part.
"""
