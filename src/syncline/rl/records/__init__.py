"""Run records of algorithms, and videos of episodes.

Files in the order of the data flow: `time_split` (seconds of an iteration by activity),
`bottleneck` (the limiting part), `recorder` (`AlgorithmRecorder`, the writer of runs of kind
`rl`), `videos` (episodes with frames).
"""
