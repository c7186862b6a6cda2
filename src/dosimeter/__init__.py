"""dosimeter: how much privacy has a machine-learning model really cost the people in its training data?"""

from dosimeter._validate import InputError
from dosimeter.estimate import Estimate, Validity
from dosimeter.evidence import Counts, OneRun, Scores, fair_coins, mask_hash

__version__ = "0.1.0"
