import pytest


@pytest.fixture(autouse=True)
def alone(tmp_path_factory, monkeypatch):
    """An empty cache, and no data folder from outside."""
    monkeypatch.delenv("DOSIMETER_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
