"""What a person sees of an algorithm: its run record and videos of episodes.

Files in the order of the data flow: `time_split` (seconds of an iteration by activity),
`bottleneck` (the part that limits), `recorder` (`AlgorithmRecorder`, the writer of a run of kind
`rl`), `videos` (episodes with frames).
"""
