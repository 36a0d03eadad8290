"""Returns and advantages: pure functions of arrays [T, N].

Files: `gae`, `vtrace`, `n_step`, `lambda_returns`.
"""
