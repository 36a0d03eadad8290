"""Sources: where rows enter a dataset.

Files, in the order in which data flows through them: `datasource` (the extension point), `files`
and `partitioning` (which files, and what their paths say), `file_based` (reading files), the
formats `parquet`, `csv`, `json`, `text`, `binary`, `numpy`, `images`, `webdataset` (with
`webdataset_codecs`), `tfrecords` (with `tfrecord_framing`, `tfexample`), `orc`; besides these
`sql`, `lance`, `huggingface`, `torch_dataset`, `memory`, `range`, and `slices` for those that cut
rows.
"""
