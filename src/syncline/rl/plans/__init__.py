"""Plans: schedules of sampling and learning, as state machines, and their driver.

Files: `messages` (events and instructions), `batch_buffer` (batches that wait or are reused),
`asynchronous` (the plan of IMPALA and APPO), `driver` (executes a plan with runners, learners and
clocks).
"""
