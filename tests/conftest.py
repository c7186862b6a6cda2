"""What every test may count on, and which tests are the same with and without extras."""

import ast
import importlib.util
import sys
import tempfile
from functools import cache

import pytest
from hypothesis import HealthCheck, settings

# The folder tests/datasets stands on the path, and transformers would take it for the package of that name.
_spec = importlib.util.find_spec("datasets")
if _spec is not None and _spec.origin is None:
    sys.modules["datasets"] = None


# A busy machine draws inputs and computes slowly; that is no failure.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")


# `import-linter` holds these layers to NumPy, SciPy and dp-accounting, which every environment has. A file that uses no
# other layer, no experiment and no other program tests the same with and without extras: once is enough.
NUMERIC = {"_validate", "accounting", "estimate", "estimators", "evidence", "geometry", "identifiability"}


@cache
def is_numeric(path):
    """Whether the tests of a file are of the numeric layers alone."""
    import dosimeter

    layers = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "dosimeter":
            names = {alias.name: getattr(dosimeter, alias.name, None) for alias in node.names}
            layers |= {getattr(named, "__module__", f"dosimeter.{name}") for name, named in names.items()}
        elif isinstance(node, ast.ImportFrom):
            layers.add(node.module or "tests")
        elif isinstance(node, ast.Import):
            layers |= {f"dosimeter.{alias.name}" if alias.name == "dosimeter" else alias.name for alias in node.names}
    own = {name.split(".")[1] for name in layers if name.startswith("dosimeter.")}
    others = {name.split(".")[0] for name in layers} & {"experiments", "importlib", "runpy", "subprocess"}
    return bool(own) and own <= NUMERIC and not others


def pytest_collection_modifyitems(config, items):
    """Mark them, where somebody asks for tests by this mark."""
    if "once" in config.option.markexpr:
        for item in items:
            if is_numeric(item.path):
                item.add_marker(pytest.mark.once)


@pytest.fixture(autouse=True, scope="session")
def own_temporary_folder(tmp_path_factory):
    """Logs of tasks that fail on purpose go away with pytest's folders."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))
        yield
