"""What every test may count on."""

import importlib.util
import sys
import tempfile

import pytest
from hypothesis import HealthCheck, settings

# The folder tests/datasets stands on the path, and transformers would take it for the package of that name.
_spec = importlib.util.find_spec("datasets")
if _spec is not None and _spec.origin is None:
    sys.modules["datasets"] = None


# A busy machine draws inputs and computes slowly; that is no failure.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")


@pytest.fixture(autouse=True, scope="session")
def own_temporary_folder(tmp_path_factory):
    """Logs of tasks that fail on purpose go away with pytest's folders."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))
        yield
