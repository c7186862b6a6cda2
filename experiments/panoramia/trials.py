"""What else a generator of images was tried with: the image instead of the velocity, longer training, an auto-encoder.

Each way makes new images from noise alone. The same map then goes over them and over fresh images: none, the low
frequencies, or an auto-encoder that keeps as many numbers. It learns from images that are neither members nor fresh, so
it knows no side better than the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dosimeter.attacks.image_classifier import image_judge
from dosimeter.engine import Store
from dosimeter.evidence import Scores
from dosimeter.generators import FlowMatching
from dosimeter.generators.nearest import best_correlations

from ..shared import announce
from .images import Settings, drawn, low_pass
from .networks import planes

SHOWN = 500  # images whose nearest member is looked for
EPOCHS, BATCH, RATE = 20, 128, 2e-3  # of the auto-encoder
Map = Callable[[Any], Any]


def tried(settings: Settings, size: str, seed: int, store: Store | None) -> list[dict[str, Any]]:
    """One row with every prediction, trained for its own number of steps, and every map."""
    (members, y), (fresh, _), (others, _) = drawn({**settings, "low_pass": 1.0}, seed)
    learnt = round(settings["splits"][0] * len(members))
    count, found = min(settings["mapped"], len(fresh)), []
    known = list(maps(settings, others, seed))
    for prediction, steps in settings["trials"].items():
        flow = FlowMatching(steps=steps, flips=True, prediction=prediction, store=store)
        made = flow.fit((members[:learnt], y[:learnt]), seed=seed).sample(count, seed=seed)[0]
        for name, numbers, apply in known:
            real, generated, inside = (apply(side) for side in (fresh[:count], made, members[:learnt]))
            announce(f"panoramia: a judge of images by {prediction}, {name}")
            nearest = [float(np.median(best_correlations(inside, side[:SHOWN]))) for side in (generated, real)]
            told = {"auc": told_apart(real, generated, seed=seed), "nearest": nearest[0], "nearest_real": nearest[1]}
            found.append({"prediction": prediction, "steps": steps, "map": name, "numbers": numbers, **told})
    about = {"key": "trials", "size": size, "seed": seed, "data": settings["data"], "side": settings["side"]}
    return [{**about, "learnt": learnt, "tried": found}]


def maps(settings: Settings, others: Any, seed: int) -> Iterator[tuple[str, int, Map]]:
    """Each map with its name and the numbers that it keeps of an image."""
    side, colours = others.shape[1], others.shape[-1]
    for share in settings["shares"]:
        kept = colours * round(share * side) ** 2
        yield "none" if share >= 1 else f"low frequencies, {share:g}", kept, lambda x, share=share: low_pass(x, share)
        if share < 1:
            filters = max(1, round(kept / (side // 4) ** 2))
            yield "auto-encoder", filters * (side // 4) ** 2, auto_encoder(others, filters, seed=seed)


def told_apart(real: Any, generated: Any, *, seed: int) -> float:
    """The AUC of a convolutional judge that was trained on the first half of both."""
    half = len(real) // 2
    both = np.concatenate([real[:half], generated[:half]])
    odds = image_judge(both, np.arange(2 * half) < half, seed=seed)
    return Scores(odds(real[half:]), odds(generated[half:])).auc


def auto_encoder(images: Any, filters: int, *, seed: int) -> Map:
    """Train one that keeps so many numbers for each square of 4 × 4 pixels; what it makes of images."""
    import torch
    from torch import nn

    announce(f"panoramia: an auto-encoder of {filters} filters on {len(images)} images")
    inputs, colours = planes(images), images.shape[-1]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed % 2**63)
            network = nn.Sequential(
                *(nn.Conv2d(colours, 32, 4, 2, 1), nn.SiLU(), nn.Conv2d(32, 64, 4, 2, 1), nn.SiLU()),
                *(nn.Conv2d(64, 64, 3, padding=1), nn.SiLU(), nn.Conv2d(64, filters, 1), nn.Conv2d(filters, 64, 1)),
                *(nn.SiLU(), nn.Conv2d(64, 64, 3, padding=1), nn.SiLU(), nn.ConvTranspose2d(64, 32, 4, 2, 1)),
                *(nn.SiLU(), nn.ConvTranspose2d(32, colours, 4, 2, 1)),
            ).to(memory_format=torch.channels_last)
            steps = EPOCHS * math.ceil(len(inputs) / BATCH)
            optimiser = torch.optim.Adam(network.parameters(), RATE)
            schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=steps)
            for _ in range(EPOCHS):
                for rows in torch.randperm(len(inputs)).split(BATCH):
                    optimiser.zero_grad()
                    ((network(inputs[rows]) - inputs[rows]) ** 2).mean().backward()
                    optimiser.step()
                    schedule.step()
    finally:
        torch.set_num_threads(threads)

    def seen(asked: Any) -> Any:
        with torch.inference_mode():
            made = torch.cat([network(part) for part in planes(asked).split(1000)]).numpy()
        return np.rint((np.moveaxis(made, 1, -1) + 1.0) * 127.5).clip(0, 255).astype(np.uint8)

    return seen
