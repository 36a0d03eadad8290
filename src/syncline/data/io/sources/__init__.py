"""Sources: where rows enter a dataset.

Files, in the order in which data flows through them: `datasource` (the extension point),
`file_listing` and `partitioning` (files to read, and columns in their paths),
`file_based_datasource` (base class of file formats), the formats `parquet` with
`parquet_row_groups`, `csv`, `json`, `text`, `binary`, `numpy`, `images`, `videos`, `audio`,
`webdataset`, `tfrecords`, `avro` and `orc`;
`indexed_shards` (base class of folders with an index), `mds` and `litdata` with `litdata_nested`;
besides these `sql`, `lance`, `delta`, `iceberg`, `mongo`, `kafka`, `zarr`, `huggingface`,
`torch_dataset`, `range` and `arrow_files` (the format of cached datasets).
"""
