"""Stored files are damaged in every way: never a wrong result, and what is sound stays."""

import random
import warnings

import chaos_jobs

from dosimeter.engine import DamagedEntryWarning, Store, Task, run

TASKS = [Task("t", {}, seed) for seed in range(12)]


def values(task, store):
    (result,) = run(chaos_jobs.draw, [task], engine="inline", store=store, progress=False)
    return result.arrays["values"].tobytes(), result.cached


def damage(file, others, rng):
    """Change a stored file; how."""
    content = bytearray(file.read_bytes())
    way = rng.choice(["bit", "byte", "cut", "more", "zeros", "swap", "gone", "empty", "other"])
    at = rng.randrange(len(content))
    if way == "bit":
        content[at] ^= 1 << rng.randrange(8)
    elif way == "byte":
        content[at] = (content[at] + rng.randrange(1, 256)) % 256
    elif way == "cut":
        del content[at:]
    elif way == "more":
        content += rng.randbytes(rng.randrange(1, 200))
    elif way == "zeros":
        content[at : at + 64] = bytes(len(content[at : at + 64]))
    elif way == "swap":
        other = rng.randrange(len(content))
        content[at], content[other] = content[other], content[at]
    elif way == "empty":
        content.clear()
    elif way == "other":
        content = bytearray(rng.choice(others).read_bytes())
    if way == "gone":
        file.unlink()
    else:
        file.write_bytes(content)
    return way


def test_damage_is_found_and_made_good(tmp_path, sizes, tally):
    rng, store = random.Random(11), Store(tmp_path / "store")
    reference = [values(task, store)[0] for task in TASKS]
    damages = 0
    while damages < sizes.flips:  # some swaps change nothing
        number = rng.randrange(len(TASKS))
        files = sorted(file for file in store.folder.glob("??/*") if file.suffix in (".npz", ".json"))
        before = {file: file.read_bytes() for file in files}
        file = rng.choice(files)
        way = damage(file, files, rng)
        altered = not file.exists() or file.read_bytes() != before[file]
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always", DamagedEntryWarning)
            found = [values(task, store) for task in TASKS] if altered else [values(TASKS[number], store)]
        assert [bits for bits, _ in found] == (reference if altered else [reference[number]]), way
        assert sum(not cached for _, cached in found) == altered, way  # that one is computed again, no other
        damages += altered
        tally("stored files damaged", altered)
        tally("damages found", sum(not cached for _, cached in found))
    assert store.verify() == []
