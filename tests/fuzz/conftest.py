"""Counts the calls, for the summary of `make chaos`."""

import pytest


@pytest.fixture(autouse=True)
def counted(request, record_property):
    called = getattr(request.module, "CALLED", [0])
    before = called[0]
    yield
    record_property("chaos: fuzz calls", called[0] - before)
