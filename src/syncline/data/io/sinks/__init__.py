"""Sinks: where rows leave a dataset.

Files, in the order in which data flows through them: `datasink` (the extension point),
`file_datasink` (files below a directory, and their names), the formats `parquet`, `csv`, `json`,
`orc`, `numpy`, `images`, `tfrecords` and `webdataset`, then `staging` (layout of the staging
directory, its record and its lock) and `commit` (journal, publishing and resuming); besides these
`sql`, `lance`, `delta` and `iceberg` with `table_columns`, `mongo` and `kafka`.
"""
