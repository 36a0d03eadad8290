"""What trials have reported: `history` reads every result from a trial's directory, `choosing`
finds the best trial and says what is wrong with a metric. Tables (`syncline.tune.analysis`) and
pictures (`syncline.tune.plots`) are made of it.
"""
