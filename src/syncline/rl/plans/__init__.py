"""Plans: who samples and who learns when, as state machines, and what carries them out.

Files: `messages` (events and instructions), `batch_buffer` (batches that wait, or are used several
times), `asynchronous` (the plan of IMPALA and APPO), `driver` (runners, learners and clocks around
it).
"""
