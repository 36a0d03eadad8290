"""Libraries of Hugging Face inside a training function: `transformers`.

`accelerate` needs nothing of ours: `accelerate.Accelerator()` in the function of a `TorchTrainer`
finds the process group and the device.
"""
