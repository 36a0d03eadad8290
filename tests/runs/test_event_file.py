"""TensorBoard's format: checksums, against those of tensorboardX."""

import numpy as np
import pytest
from tensorboardX.crc32c import crc32c

from syncline.runs import event_file


@pytest.mark.parametrize("size", [*range(12), 511, 512, 513, 515, 516, 1023, 1024, 1500])
def test_checksums_are_those_of_tensorboardx(size):
    data = np.random.default_rng(size).bytes(size)
    assert event_file.crc32c(data) == crc32c(data)


def test_the_checksum_of_the_standard_s_example():
    assert event_file.crc32c(b"123456789") == 0xE3069283
