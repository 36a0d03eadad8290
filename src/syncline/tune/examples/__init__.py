"""Small searches to read, to borrow from, and to run: `python -m
syncline.tune.examples.tune_basic_example --smoke-test`. None downloads.

tune_basic_example        random search and a grid
async_hyperband_example   bad trials end early
optuna_example            parameters proposed by Optuna
custom_func_checkpointing a function that goes on from its checkpoint
pbt_example, pbt_function a population whose members learn from each other, as a class and as a function
mnist_pytorch             a network on digits, as a function; mnist_pytorch_trainable as a class
xgboost_example           boosted trees, reported by a callback
"""
