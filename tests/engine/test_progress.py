"""What is shown while an audit works: the stage, its place, and the time left for all of it."""

import logging
import re
import time

import engine_jobs as jobs
import numpy as np
import pytest

import dosimeter as dm
from dosimeter import _progress
from dosimeter._progress import Progress, TaskProgress, next_stage, silence, stages
from dosimeter.engine import Task, run


def remembers(indices, seed):
    outputs = np.random.default_rng(seed).normal(size=60)
    outputs[indices] += 5
    return lambda records: outputs


DATA = np.zeros((60, 1)), np.zeros(60)
OPTIONS = {"signal": lambda outputs, y: outputs, "seed": 0, "run": dm.RunOptions(engine="inline")}


def test_stages_are_taken_in_their_order():
    with stages({"shadow models": 8, "nothing": 0, "runs": 20}):
        first, second = next_stage(), next_stage()
        assert (str(first), first.later) == ("shadow models (1 of 2)", 20)
        assert (str(second), second.later) == ("runs (2 of 2)", 0)
        assert next_stage() is None
    assert next_stage() is None


def test_an_audit_names_its_stages(capfd):
    dm.audit_training(remembers, DATA, shadows=8, runs=20, **OPTIONS)
    first, second = capfd.readouterr().err.splitlines()
    assert re.fullmatch(
        r"dosimeter: shadow models \(1 of 2\): \d+ of \d+ tasks in .*; about .* left for the rest", first
    )
    assert re.fullmatch(r"dosimeter: runs \(2 of 2\): \d+ of \d+ tasks in [\d.]+ s", second)


def test_one_stage_needs_no_place(capfd):
    dm.audit_one_run(remembers, DATA, count=30, **OPTIONS)
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("dosimeter: the run: 1 of 1 tasks")


def test_the_time_left_is_that_of_all_stages(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with stages({"shadow models": 40, "runs": 100}):
        progress = TaskProgress(10, shown=False)  # four models in a task
        progress.begin()
        now[0] = 8.0
        progress.step()
        progress.step()
        assert progress.seconds_left() == pytest.approx(4.0 * 8)
        assert progress.seconds_left_for_all() == pytest.approx(4.0 * 8 + 100 * 1.0)
        assert progress._note().endswith("about 2 min left for all")
        last = TaskProgress(25, shown=False)
        last.begin()
        now[0] = 10.0
        last.step()
        assert last.seconds_left_for_all() == last.seconds_left()


def test_the_log_tells_what_is_done(caplog):
    with caplog.at_level(logging.DEBUG, logger="dosimeter"), stages({"shadow models": 3, "runs": 9}):
        list(run(jobs.draw, [Task("t", {}, seed) for seed in range(3)], engine="inline", progress=False))
    said = [record.getMessage() for record in caplog.records]
    assert said[0] == "shadow models (1 of 2): 3 tasks"
    assert said[1].startswith("shadow models (1 of 2): task 1 of 3")
    assert said[-1].startswith("shadow models (1 of 2): 3 of 3 tasks in")
    assert {record.name for record in caplog.records} == {"dosimeter"}


def test_a_library_says_nothing_without_being_asked(capfd):
    assert any(isinstance(handler, logging.NullHandler) for handler in _progress.logger.handlers)
    list(run(jobs.draw, [Task("t", {}, 0)], engine="inline", progress=False))
    assert capfd.readouterr() == ("", "")


def test_silence(capfd):
    for quiet in (True, False):
        with silence(quiet), Progress(1000, "Asking the model about 1000 records") as progress:
            progress.look(1, 1.0, 1)
            progress.advance(1000)
        assert (capfd.readouterr().err == "") == quiet
