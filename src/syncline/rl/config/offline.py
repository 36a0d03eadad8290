"""Options of offline data: input and output."""

from __future__ import annotations

from typing import Any, TypeVar

from syncline.rl.columns.names import Columns
from syncline.rl.config.section import NotProvided, Section
from syncline.rl.value_types import Options

ConfigT = TypeVar("ConfigT", bound="OfflineOptions")


class OfflineOptions(Section):
    """Options of `offline_data()`."""

    input_: Any = "sampler"
    input_config: Options = {}
    offline_data_class: type | None = None
    input_read_method: Any = "read_parquet"
    input_read_method_kwargs: Options = {}
    input_read_schema: dict[str, str] = {}
    input_read_episodes: bool = False
    input_read_sample_batches: bool = False
    input_read_batch_size: int | None = None
    input_filesystem: Any = None
    input_filesystem_kwargs: Options = {}
    input_compress_columns: list[str] = [Columns.OBS, Columns.NEXT_OBS]
    input_spaces_jsonable: bool = True
    materialize_data: bool = False
    materialize_mapped_data: bool = True
    map_batches_kwargs: Options = {}
    iter_batches_kwargs: Options = {}
    ignore_final_observation: bool = False
    prelearner_class: type | None = None
    prelearner_buffer_class: type | None = None
    prelearner_buffer_kwargs: Options = {}
    prelearner_module_synch_period: int = 10
    prelearner_use_recorded_module_states: bool = False
    dataset_num_iters_per_learner: int | None = None
    actions_in_input_normalized: bool = False
    postprocess_inputs: bool = False
    shuffle_buffer_size: int = 0
    output: str | None = None
    output_config: Options = {}
    output_compress_columns: list[str] = [Columns.OBS, Columns.NEXT_OBS]
    output_max_file_size: int = 64 * 1024 * 1024
    output_max_rows_per_file: int | None = None
    output_write_remaining_data: bool = False
    output_write_method: str = "write_parquet"
    output_write_method_kwargs: Options = {}
    output_filesystem: Any = None
    output_filesystem_kwargs: Options = {}
    output_write_episodes: bool = True
    offline_sampling: bool = False

    def offline_data(
        self: ConfigT,
        *,
        input_: object = NotProvided,
        input_config: Options = NotProvided,
        offline_data_class: type | None = NotProvided,
        input_read_method: object = NotProvided,
        input_read_method_kwargs: Options = NotProvided,
        input_read_schema: dict[str, str] = NotProvided,
        input_read_episodes: bool = NotProvided,
        input_read_sample_batches: bool = NotProvided,
        input_read_batch_size: int | None = NotProvided,
        input_filesystem: object = NotProvided,
        input_filesystem_kwargs: Options = NotProvided,
        input_compress_columns: list[str] = NotProvided,
        materialize_data: bool = NotProvided,
        materialize_mapped_data: bool = NotProvided,
        map_batches_kwargs: Options = NotProvided,
        iter_batches_kwargs: Options = NotProvided,
        ignore_final_observation: bool = NotProvided,
        prelearner_class: type | None = NotProvided,
        prelearner_buffer_class: type | None = NotProvided,
        prelearner_buffer_kwargs: Options = NotProvided,
        prelearner_module_synch_period: int = NotProvided,
        prelearner_use_recorded_module_states: bool = NotProvided,
        dataset_num_iters_per_learner: int | None = NotProvided,
        actions_in_input_normalized: bool = NotProvided,
        postprocess_inputs: bool = NotProvided,
        shuffle_buffer_size: int = NotProvided,
        output: str | None = NotProvided,
        output_config: Options = NotProvided,
        output_compress_columns: list[str] = NotProvided,
        output_max_file_size: int = NotProvided,
        output_max_rows_per_file: int | None = NotProvided,
        output_write_remaining_data: bool = NotProvided,
        output_write_method: str = NotProvided,
        output_write_method_kwargs: Options = NotProvided,
        output_filesystem: object = NotProvided,
        output_filesystem_kwargs: Options = NotProvided,
        output_write_episodes: bool = NotProvided,
        offline_sampling: bool = NotProvided,
    ) -> ConfigT:
        """Set the sources of offline data and the recording of sampled episodes.

        Args:
            input_: Paths of files to learn from; "sampler" for environments.
            input_config: Has no effect.
            offline_data_class: Subclass of `OfflineData`.
            input_read_method: Name of a reader of `syncline.data`, such as "read_parquet", or a
                function that returns a dataset.
            input_read_method_kwargs: Arguments of the reader.
            input_read_schema: Map from names in `Columns` to column names of the file.
            input_read_episodes: Rows are recorded episodes.
            input_read_sample_batches: Rows are batches from older releases.
            input_read_batch_size: Rows per read; by default the training batch size.
            input_filesystem: "gcs", "s3", "abs" or a filesystem of pyarrow.
            input_filesystem_kwargs: Arguments of the filesystem.
            input_compress_columns: Columns that are compressed in the files.
            materialize_data: Keep the read data in memory.
            materialize_mapped_data: Keep prepared batches in memory.
            map_batches_kwargs: Arguments of `map_batches` for the preparation.
            iter_batches_kwargs: Arguments of `iter_batches`.
            ignore_final_observation: Use 0 as the observation after the last step.
            prelearner_class: Subclass of `OfflinePreLearner`.
            prelearner_buffer_class: Buffer between episodes and batches.
            prelearner_buffer_kwargs: Arguments of that buffer.
            prelearner_module_synch_period: Has no effect.
            prelearner_use_recorded_module_states: Use recorded states of stateful modules.
            dataset_num_iters_per_learner: Batches per iteration; None for one pass through the
                data.
            actions_in_input_normalized: Recorded actions are already in [-1, 1].
            postprocess_inputs: Has no effect.
            shuffle_buffer_size: Size of the shuffle buffer in rows.
            output: Directory for recorded episodes.
            output_config: Arguments of the filesystem, in older releases.
            output_compress_columns: Has no effect: Parquet compresses all columns.
            output_max_file_size: Maximum size of a file in bytes.
            output_max_rows_per_file: Maximum number of rows per file; takes precedence.
            output_write_remaining_data: Has no effect: all sampled data are written.
            output_write_method: Name of a writing method of `Dataset`, such as "write_parquet".
            output_write_method_kwargs: Arguments of that method.
            output_filesystem: See `input_filesystem`.
            output_filesystem_kwargs: Arguments of the filesystem.
            output_write_episodes: Write one episode per row; otherwise one step per row.
            offline_sampling: Has no effect.
        """
        return self._set(dict(locals()))
