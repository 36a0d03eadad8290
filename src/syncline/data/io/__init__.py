"""Reading and writing: where rows enter and leave a dataset.

Files, in the order in which data flows through them: `argument_types` (the check of arguments),
`filesystem` (paths and URIs to pyarrow filesystems, retries), `sources/` (formats that are read),
`sinks/` (formats that are written and the commit of their files), `write_job` (one write, from its
start to its commit), `conversion` (datasets as objects of other libraries).
"""
