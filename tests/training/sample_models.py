"""Small data and models that worker processes can import."""

import numpy as np

SHAPE = (1, 8, 8)


def images(count=60, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, count)
    centres = rng.standard_normal((classes, *SHAPE))
    return (centres[y] + rng.standard_normal((count, *SHAPE))).astype(np.float32), y


def halves(models, count, seed=0, sizes=None):
    rng = np.random.default_rng(seed)
    chosen = np.zeros((models, count), bool)
    for row, size in zip(chosen, sizes or [count // 2] * models, strict=True):
        row[rng.permutation(count)[:size]] = True
    return chosen


def dense_net():
    from torch import nn

    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 8, bias=False), nn.Tanh(), nn.Linear(8, 3)
    )


def two_logits():
    """For two classes."""
    from torch import nn

    return nn.Sequential(nn.Flatten(), nn.Linear(64, 9), nn.ReLU(), nn.Linear(9, 2))


def softmax_regression():
    from torch import nn

    return nn.Sequential(nn.Flatten(), nn.Linear(64, 3))


def conv_net():
    from torch import nn

    return nn.Sequential(
        *(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
        *(nn.Conv2d(4, 6, 3, stride=2, groups=2), nn.ReLU(), nn.Flatten(), nn.Linear(6, 3)),
    )


def grouped_net():
    """Groups of channels are normalised before an activation and after a pooling."""
    from torch import nn

    return nn.Sequential(
        *(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.GroupNorm(2, 4, affine=False)),
        *(nn.Conv2d(4, 6, 3), nn.GroupNorm(3, 6, affine=False), nn.Tanh(), nn.Flatten(), nn.Linear(24, 3)),
    )


def viewed_net(parts=None):
    """As people write it: a `view` after the convolution, which takes no other memory layout."""
    from torch import nn

    class Viewed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers, self.last = nn.Sequential(*(parts or [nn.Conv2d(1, 3, 3)])), nn.Linear(3 * 36, 3)

        def forward(self, x):
            x = self.layers(x)
            return self.last(x.view(x.size(0), -1))

    return Viewed()


def viewed_normed_net():
    from torch import nn

    return viewed_net([nn.Conv2d(1, 3, 3), nn.GroupNorm(1, 3)])


def normed_net():
    from torch import nn

    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 3))


def dying_net():
    """A module that ends its process, unless it is the one the tests run in."""
    import multiprocessing
    import os

    if multiprocessing.parent_process() is not None:
        os._exit(1)
    return dense_net()
