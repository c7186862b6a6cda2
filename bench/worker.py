"""A process that stays open in one environment: a JSON request a line on standard input, a JSON answer a line out.

A task is a function of a module beside this file: it gets the data ready and returns the work to be timed, a function
without arguments. CPU time of this process is what is measured.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import warnings
from importlib import metadata


def main(module_name: str) -> None:
    """Answer requests until standard input ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints must not get between the answers
    warnings.simplefilter("ignore")
    module = importlib.import_module(module_name)
    for line in sys.stdin:
        try:
            answer = _answer(module, json.loads(line))
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _answer(module: object, request: dict) -> dict:
    if request["task"] == "version":
        return {"value": metadata.version(request["arguments"]["package"])}
    work = getattr(module, request["task"])(**request["arguments"])
    start = time.process_time()
    value = work()
    seconds = time.process_time() - start
    scale = getattr(work, "scale", 1)  # the measured share of a task that is too long to be run whole
    return {"seconds": seconds * scale, "value": value, "scale": scale}


if __name__ == "__main__":
    main(sys.argv[1])
