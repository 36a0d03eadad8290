"""Callbacks for trials that train with a framework: `ray_train` (trainers of this library),
`pytorch_lightning`, `xgboost`, `lightgbm`, `keras`.

Those for XGBoost, LightGBM and Keras are the callbacks of `syncline.train` under Ray Tune's names:
to them a trial is a run with one worker.
"""
