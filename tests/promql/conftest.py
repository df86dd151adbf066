"""A real Prometheus for the whole package's tests, and the same samples in our own storage."""

from collections.abc import Iterator

import pytest

from alerts.promql import Storage
from tests.promql import oracle
from tests.servers import need


@pytest.fixture(scope="session")
def storage() -> Storage:
    return oracle.filled(oracle.samples())


@pytest.fixture(scope="session")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[oracle.Oracle]:
    program = need("prometheus", left_out="nothing compares our answers with its own")
    with oracle.running(program, tmp_path_factory.mktemp("prometheus")) as running:
        running.write(oracle.samples())
        yield running
