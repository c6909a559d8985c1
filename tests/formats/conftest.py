"""The devices that files are loaded onto and saved from."""

import pytest
from tensor_files import DEVICES, opened_device


@pytest.fixture(params=DEVICES)
def device(request):
    with opened_device(request.param) as name:
        yield name
