"""Metrics: names of results, reductions of logged values, and the logger.

Files in the order of the data flow: `names` (keys of results), `stats` (base class of the values of
one key), `series_stats` and `other_stats` (reductions), `metrics_logger` (`MetricsLogger`).
"""
