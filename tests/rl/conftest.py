"""One thread for torch: several threads wait for each other when the machine is busy."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
