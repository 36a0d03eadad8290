"""Heads and steps of chains: the work of tasks.

Files, in the order in which data flows through them:

    heads.py           first tables of a task; sampling and partitioning functions of exchanges
    user_functions.py  calling user functions: errors, skipped rows, time limits, async calls
    function_steps.py  steps that call a function with rows, batches or groups
    block_steps.py     steps without a user function: expressions, samples, aggregates, writes
"""
