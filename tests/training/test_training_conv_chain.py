"""Gradients by hand are those of autograd, whatever the chain of convolutions; what is no such chain is left alone."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the engine needs torch: dosimeter[torch]")
nn = torch.nn

from dosimeter.training import by_record  # noqa: E402
from dosimeter.training.conv_chain import ConvChain  # noqa: E402
from dosimeter.training.steps import losses  # noqa: E402


class Functional(nn.Module):
    """As people write it: functions in the forward, a view by hand."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 6, 3, bias=False)
        self.c, self.d = nn.Linear(6 * 4, 9), nn.Linear(9, 3)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.a(x)), 2)
        x = torch.max_pool2d(self.b(x).tanh(), 2, 1)
        return self.d(torch.sigmoid(self.c(x.view(x.size(0), -1))))


def sequence(*parts, channels=1, side=12, head=()):
    """Layers, then flattened and brought to three classes."""
    with torch.no_grad():
        width = nn.Sequential(*parts)(torch.zeros(1, channels, side, side)).numel()
    return nn.Sequential(*parts, nn.Flatten(), *(head or (nn.Linear(width, 3),)))


CHAINS = {
    "pooled after": lambda: sequence(nn.Conv2d(1, 5, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
    "pooled before": lambda: sequence(nn.Conv2d(1, 5, 3), nn.MaxPool2d(3, 2, padding=1), nn.Tanh()),
    "two activations": lambda: sequence(nn.Conv2d(1, 5, 3), nn.Tanh(), nn.Sigmoid(), nn.MaxPool2d(2, ceil_mode=True)),
    "steps and gaps": lambda: sequence(nn.Conv2d(1, 5, (3, 2), stride=(2, 1), padding=(0, 2), dilation=(1, 2))),
    "without bias": lambda: sequence(nn.Conv2d(1, 5, 3, bias=False), nn.ReLU(), nn.Conv2d(5, 4, 3, bias=False)),
    "groups": lambda: sequence(nn.Conv2d(1, 4, 3), nn.ReLU(inplace=True), nn.Conv2d(4, 6, 3, groups=2), nn.Identity()),
    "wide head": lambda: sequence(nn.Conv2d(1, 2, 11), head=(nn.ReLU(), nn.Linear(8, 40), nn.Tanh(), nn.Linear(40, 3))),
    "pool of a pool": lambda: sequence(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.MaxPool2d(2)),
    "pool first": lambda: sequence(nn.MaxPool2d(2), nn.Conv2d(1, 3, 3), nn.ReLU()),
    "one logit": lambda: sequence(nn.Conv2d(1, 2, 5), nn.ReLU(), head=(nn.Linear(128, 1),)),
    "functions": Functional,
    "normalised": lambda: sequence(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.MaxPool2d(2), nn.GroupNorm(3, 6, affine=False)),
    "normalised before": lambda: sequence(
        *(nn.Conv2d(1, 6, 3), nn.GroupNorm(2, 6, affine=False), nn.Tanh()),
        *(nn.Conv2d(6, 4, 3), nn.GroupNorm(4, 4, affine=False)),
    ),
}
COLOURED = {
    "by columns": lambda: sequence(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), channels=3),
    "too many for columns": lambda: sequence(nn.Conv2d(3, 4, 5), nn.ReLU(), nn.MaxPool2d(2), channels=3),
}


def data(channels, count, classes=3, whole=False):
    rng = np.random.default_rng(3)
    x = rng.standard_normal((count, channels, 12, 12))
    if whole:  # equal numbers meet in every pooling
        x = np.round(x)
    return torch.from_numpy(x), torch.from_numpy(rng.integers(0, classes, count))


@pytest.mark.parametrize("piece", [1, 2**24])
@pytest.mark.parametrize("layout", ["contiguous_format", "channels_last"])
@pytest.mark.parametrize("name", [*CHAINS, *COLOURED])
def test_clipped_sums_are_those_of_one_record_after_another(name, layout, piece, monkeypatch):
    monkeypatch.setattr(by_record, "PIECE", piece)
    torch.manual_seed(1)
    module = {**CHAINS, **COLOURED}[name]().double()
    x, y = data(3 if name in COLOURED else 1, 9, 2 if name == "one logit" else 3)
    chain = ConvChain.read(module, x[:1], by_record=True)
    assert chain is not None
    singles = [
        torch.autograd.grad(losses(module(x[at : at + 1]), y[at : at + 1]).sum(), list(module.parameters()))
        for at in range(len(x))
    ]
    norms = [sum(part.square().sum() for part in single).sqrt() for single in singles]
    clip = float(torch.stack(norms).median())  # some are clipped and some are not
    module.to(memory_format=getattr(torch, layout))
    (found,) = chain.clipped_sums(x.contiguous(memory_format=getattr(torch, layout)), y, clip)
    for at, ours in enumerate(found):
        want = sum(single[at] * min(1.0, clip / norm) for single, norm in zip(singles, norms, strict=True))
        assert torch.allclose(ours, want, rtol=1e-10, atol=1e-13)
    (nothing,) = chain.clipped_sums(x[:0], y[:0], clip)
    assert all(not part.any() and part.shape == ours.shape for part, ours in zip(nothing, found, strict=True))


@pytest.mark.parametrize("fixed", [0, 9])
@pytest.mark.parametrize("name", [*CHAINS, *COLOURED])
def test_one_pass_gives_the_batch_and_the_records_apart(name, fixed):
    """The slow way: a clipped sum over the batch, and one for each of the records that are set apart."""
    torch.manual_seed(1)
    module = {**CHAINS, **COLOURED}[name]().double()
    x, y = data(3 if name in COLOURED else 1, 9, 2 if name == "one logit" else 3)
    slow = ConvChain.read(module, x[:1], by_record=True)
    fast = ConvChain.read(module, x[:1], by_record=True, fixed=fixed)
    signs = torch.tensor([1.0, -1.0], dtype=torch.float64)
    for _ in range(2):  # the second time with other weights, on columns that are there
        batch, difference = fast.clipped_sums(x, y, 0.5, signs)
        (first,), (last,) = (slow.clipped_sums(x[at : at + 1], y[at : at + 1], 0.5) for at in (7, 8))
        for ours, want in zip(batch, slow.clipped_sums(x[:7], y[:7], 0.5)[0], strict=True):
            assert torch.allclose(ours, want, rtol=1e-10, atol=1e-13)
        for ours, one, other in zip(difference, first, last, strict=True):
            assert torch.allclose(ours, one - other, rtol=1e-10, atol=1e-13)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.mul_(0.9)


@pytest.mark.parametrize("count", [1, 9])
@pytest.mark.parametrize("layout", ["contiguous_format", "channels_last"])
@pytest.mark.parametrize("name", [*CHAINS, *COLOURED])
def test_gradients_are_those_of_autograd(name, layout, count):
    torch.manual_seed(1)
    module = {**CHAINS, **COLOURED}[name]().double()
    x, y = data(3 if name in COLOURED else 1, count, 2 if name == "one logit" else 3)
    by_hand = ConvChain.read(module, x[:1])
    assert by_hand is not None
    for rows in (slice(None), slice(0, count)):  # the second time it finds its own buffers
        losses(module(x[rows]), y[rows]).sum().div(7).backward()
        theirs = [parameter.grad for parameter in module.parameters()]
        module.zero_grad()
        module.to(memory_format=getattr(torch, layout))
        by_hand.add_gradients(x[rows].contiguous(memory_format=getattr(torch, layout)), y[rows], 7)
        module.to(memory_format=torch.contiguous_format)
        for ours, want in zip(module.parameters(), theirs, strict=True):
            assert torch.allclose(ours.grad, want, rtol=1e-10, atol=1e-13)
        module.zero_grad()


def test_gradients_add_up_and_batches_may_differ_in_size():
    module = CHAINS["pooled after"]().double()
    x, y = data(1, 10)
    by_hand = ConvChain.read(module, x[:2])
    losses(module(x), y).sum().div(10).backward()
    theirs = [parameter.grad for parameter in module.parameters()]
    module.zero_grad()
    for part in (slice(0, 4), slice(4, 5), slice(5, 10)):
        by_hand.add_gradients(x[part], y[part], 10)
    for ours, want in zip(module.parameters(), theirs, strict=True):
        assert torch.allclose(ours.grad, want, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("name", ["pooled after", "pooled before", "pool of a pool"])
def test_equal_numbers_in_a_pooling(name):
    """Constant and rounded images: the first of equal numbers gets the gradient, here as in autograd."""
    module = CHAINS[name]().double()
    for x, y in (data(1, 6, whole=True), (torch.full((6, 1, 12, 12), 0.5, dtype=torch.float64), torch.arange(6) % 3)):
        by_hand = ConvChain.read(module, x[:2])
        losses(module(x), y).sum().backward()
        theirs = [parameter.grad for parameter in module.parameters()]
        module.zero_grad()
        by_hand.add_gradients(x, y, 1)
        for ours, want in zip(module.parameters(), theirs, strict=True):
            assert torch.allclose(ours.grad, want, rtol=1e-9, atol=1e-12)
        module.zero_grad()


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(1, 1, 3, padding=1), nn.Linear(144, 3)

    def forward(self, x):
        return self.b((x + self.a(x)).flatten(1))


class Scrambled(nn.Module):
    """Its view is no flattening: the channels change places with the rows before it."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(1, 2, 3), nn.Linear(200, 3)

    def forward(self, x):
        return self.b(self.a(x).transpose(1, 2).reshape(x.shape[0], -1))


OTHERS = {
    "normed": lambda: sequence(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU()),
    "reflected": lambda: sequence(nn.Conv2d(1, 4, 3, padding=1, padding_mode="reflect")),
    "same": lambda: sequence(nn.Conv2d(1, 4, 3, padding="same")),
    "dense only": lambda: nn.Sequential(nn.Flatten(), nn.Linear(144, 3)),
    "no dense layer": lambda: nn.Sequential(nn.Conv2d(1, 3, 12), nn.Flatten()),
    "works on its input in place": lambda: sequence(nn.ReLU(), nn.Conv2d(1, 3, 3)),
    "dropout": lambda: sequence(nn.Conv2d(1, 3, 3), nn.Dropout(0.5)),
    "residual": Residual,
    "scrambled": Scrambled,
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_modules_are_left_to_autograd(name):
    assert ConvChain.read(OTHERS[name]().double(), data(1, 2)[0]) is None


def test_flat_records_are_left_to_autograd():
    assert ConvChain.read(CHAINS["pooled after"]().double(), torch.zeros(2, 144, dtype=torch.float64)) is None
