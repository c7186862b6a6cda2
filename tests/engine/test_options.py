"""RunOptions: one value for where and how to run, and the keywords that it has replaced."""

import pytest

from dosimeter import InputError
from dosimeter.engine import RunOptions, Store


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"engine": "cloud"}, "engine"),
        ({"workers": 0}, "workers must be at least 1"),
        ({"store": "folder"}, r"pass Store\('folder'\)"),
        ({"progress": "yes"}, "progress"),
        ({"device": 3}, "device must be a name"),
    ],
)
def test_bad_options_are_named(options, says):
    with pytest.raises(InputError, match=says):
        RunOptions(**options)


def test_nothing_passed_is_the_default_and_run_is_taken_as_it_is(tmp_path):
    assert RunOptions.read(None, {}, caller="audit_training") == RunOptions()
    options = RunOptions(workers=2, store=Store(tmp_path))
    assert RunOptions.read(options, {}, caller="audit_training") is options


def test_former_keywords_work_with_a_note():
    with pytest.warns(DeprecationWarning, match=r"pass run=RunOptions\(workers=…, progress=…\)"):
        assert RunOptions.read(None, {"workers": 2, "progress": False}, caller="audit_training") == RunOptions(
            workers=2, progress=False
        )


def test_contradictions_are_refused():
    with pytest.raises(InputError, match="takes no argument 'worker'"):
        RunOptions.read(None, {"worker": 2}, caller="audit_training")
    with pytest.raises(InputError, match="beside run"):
        RunOptions.read(RunOptions(), {"workers": 2}, caller="audit_training")
    with pytest.raises(InputError, match="run must be RunOptions"):
        RunOptions.read({"workers": 2}, {}, caller="audit_training")
