"""A dataset shared out among several consumers, such as the ranks of a training: each gets its
part, and all go pass by pass together.

Files, in the order in which data flows through them:
    streaming_split.py   makes the iterators and their coordinator
    messages.py          what consumers and the coordinator say to each other
    liveness.py          whether a consumer's process still runs
    meeting.py           who has come to the next pass, and who keeps the others waiting (pure)
    hands.py             rows that are dealt and not fetched (pure)
    coordinator.py       runs an execution for each pass, deals, answers
    link.py              how consumers reach the coordinator
    consumer.py          fetches a rank's rows ahead of need
"""

from syncline.data.split.messages import ConsumerDiedError, SplitError
from syncline.data.split.streaming_split import streaming_split

__all__ = ["ConsumerDiedError", "SplitError", "streaming_split"]
