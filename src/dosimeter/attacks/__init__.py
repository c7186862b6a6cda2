"""Attacks: arrays of outputs to membership scores, high for a likely member."""

from __future__ import annotations

from dosimeter.attacks.base_model import calibrated_min_k_plus_plus, error_zone, token_informia, window_signs
from dosimeter.attacks.calibration import calibrated
from dosimeter.attacks.canaries import Canaries, clip_bkd, mislabelled, out_of_distribution
from dosimeter.attacks.classifier import learned
from dosimeter.attacks.likelihood import lira
from dosimeter.attacks.regression import quantile_regression
from dosimeter.attacks.relative import informia, rmia
from dosimeter.attacks.signals import best_attack
from dosimeter.attacks.table import ATTACKS, MINIMUM, SHADOW_ATTACKS, AttackRow, leave_one_out
from dosimeter.attacks.text import mean_log_probability, min_k, min_k_plus_plus, reference_ratio, zlib_ratio
from dosimeter.attacks.threshold import loss, watson
from dosimeter.attacks.white_box import WhiteBox, last_layer_gradient
from dosimeter.attacks.worst import Worst, select_worst

__all__ = [
    "ATTACKS",
    "MINIMUM",
    "SHADOW_ATTACKS",
    "AttackRow",
    "Canaries",
    "WhiteBox",
    "Worst",
    "best_attack",
    "calibrated",
    "calibrated_min_k_plus_plus",
    "clip_bkd",
    "error_zone",
    "informia",
    "last_layer_gradient",
    "learned",
    "leave_one_out",
    "lira",
    "loss",
    "mean_log_probability",
    "min_k",
    "min_k_plus_plus",
    "mislabelled",
    "out_of_distribution",
    "quantile_regression",
    "reference_ratio",
    "rmia",
    "select_worst",
    "token_informia",
    "watson",
    "window_signs",
    "zlib_ratio",
]
