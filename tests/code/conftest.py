# SPDX-License-Identifier: Apache-2.0
import pytest

from driver import Driver


@pytest.fixture
def start(tmp_path):
    """Starts drivers in an empty directory, and ends them."""
    drivers = []

    def start(language, **options):
        drivers.append(Driver(language, **{"cwd": tmp_path, **options}))
        return drivers[-1]

    yield start
    for driver in drivers:
        driver.close()


@pytest.fixture
def python(start):
    return start("python")


@pytest.fixture
def node(start):
    return start("node")


@pytest.fixture
def bash(start):
    return start("bash")
