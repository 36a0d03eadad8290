"""Sinks: where rows leave a dataset.

Files, in the order in which data flows through them: `datasink` (the extension point),
`filename_provider` (names of files), `file_datasink` (files below a directory), the formats
`parquet`, `csv`, `json`, `orc`, `numpy`, `images`, `tfrecords`, `webdataset`, then `commit`
(staging, journal, publishing), `lock` (who works in a staging directory) and `record` (what of that
readers see); besides these `sql` and `lance`.
"""
