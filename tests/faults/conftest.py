"""What fault tests share."""

import pytest

from tests.faults.kinds import Wholes


@pytest.fixture(scope="session")
def wholes(tmp_path_factory):
    return Wholes(tmp_path_factory.mktemp("wholes"))
