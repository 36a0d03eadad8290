"""`ray.tune.sklearn` moved to the package tune-sklearn, which is no longer maintained."""

raise ImportError(
    "`tune.sklearn` does not exist: search the parameters of an estimator with "
    "`tune.Tuner(function, param_space=...)`, whose function reports "
    "`cross_val_score(estimator, X, y).mean()`; or run scikit-learn's GridSearchCV with the joblib "
    "backend of `util.joblib.register_ray`"
)
