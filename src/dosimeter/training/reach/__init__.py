"""A hash of everything that a value can reach: code, the globals it names, objects by their state, arrays by bytes.

The walk writes a canonical text into a digest. Numbers, texts and tuples are written where they stand. Everything that
has an identity is numbered when it is first met, waits in a queue, and is named by its number afterwards, so that
cycles end and nothing is deep. What only may be reached (the rest of a module that is handed around) waits in a second
queue, behind all that is reached for certain.

The text is the same in another process: no addresses, no hashes of Python, no order of sets.

walk.py holds the walk, objects.py what values hold, functions.py what code reaches, classes.py classes and modules.
"""

from dosimeter.training.reach import classes as _classes
from dosimeter.training.reach import functions as _functions
from dosimeter.training.reach import objects as _objects
from dosimeter.training.reach.walk import Reached, UnreachableStateError, reach

__all__ = ["Reached", "UnreachableStateError", "reach"]

del _classes, _functions, _objects  # imported so that they say what values of their types hold
