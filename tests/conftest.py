"""What every test may count on."""

import tempfile

import pytest


@pytest.fixture(autouse=True, scope="session")
def own_temporary_folder(tmp_path_factory):
    """Logs of tasks that fail on purpose go away with pytest's folders."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))
        yield
