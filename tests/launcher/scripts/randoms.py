"""Random states, which a fork would copy."""

import os
import random
import uuid

import numpy as np
import torch

values = [random.random(), np.random.rand(), torch.rand(1).item(), uuid.uuid4().hex]
print(os.environ["RANK"], *values)
