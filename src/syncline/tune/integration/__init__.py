"""Callbacks for frameworks whose training is a trial: `ray_train` (our own trainers),
`pytorch_lightning`, `xgboost`, `lightgbm`, `keras`.

Those of the boosting libraries and of Keras are the callbacks of `syncline.train` under the names
that searches know them by: a trial is a run with one worker to them.
"""
