"""Small searches to read and to copy from. To run one:
`python -m syncline.tune.examples.tune_basic_example --smoke-test`. Nothing is downloaded.

tune_basic_example         random search and a grid
async_hyperband_example    early stop of bad trials
optuna_example             parameters proposed by Optuna
custom_func_checkpointing  a function that continues from its checkpoint
pbt_example, pbt_function  population based training of a class, and of a function
mnist_pytorch              a network on digits as a function; mnist_pytorch_trainable as a class
xgboost_example            boosted trees, reported by a callback
"""
