"""Executions: run a lowered plan as a stream of blocks in bounded memory.

Files, in the order in which data flows through them:

    physical_plan.py       stages, chains and limits of an execution
    execution.py           `start_execution` and the handle that iterates over blocks
    driver.py              the thread that carries out the scheduler's instructions
    driver_queues.py       calls to the driver, blocks to the consumer and to cache writers
    messages.py            events and instructions between scheduler and driver
    scheduler.py           what to run next; a pure state machine
    operators/             one class per grouping, used by the scheduler
    block_store.py         blocks by number, delivered blocks, held blocks
    task_attempts.py       a launched task through all its attempts; which errors are retried
    executors.py           where each stage runs; threads
    torch_use.py           whether the workers of a plan may use torch
    worker_pools.py        worker processes shared by stages, and actor pools
    worker_handles.py      the driver's handle of a worker, idle workers, node assignment
    data_worker.py         the actor that runs tasks in a worker process
    heap.py                memory that a worker process frees and uses again
    task_run.py            one running task, block by block
    steps/                 heads and steps of chains
    stats.py               time and rows per operator
    headroom.py            rate of a pipeline relative to that of its consumer
    progress_display.py    progress lines on a terminal
    execution_recorder.py  what is recorded of an execution, and when
    execution_journal.py   the files that hold the records
    query.py               executions that answer a question about a dataset
    dataset_splits.py      `split`, `split_at_indices`, `train_test_split`
    cache.py               `Dataset.cache`: what executions store and reuse
"""
