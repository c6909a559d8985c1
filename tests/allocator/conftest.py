"""The allocator that most tests of allocators are about."""

import pytest
from memory_devices import FarDevice, opened

from hcq import Device


@pytest.fixture
def far():
    with opened(FarDevice) as name:
        yield Device[name].allocator
