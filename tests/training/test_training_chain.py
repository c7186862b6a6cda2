"""Which modules are dense chains, whatever way they are written."""

import pytest

torch = pytest.importorskip("torch", reason="the engine needs torch: dosimeter[torch]")
nn = torch.nn

from dosimeter.training.chain import chain  # noqa: E402


class Net(nn.Module):
    def __init__(self, forward, **parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self._forward = forward

    def forward(self, x):
        return self._forward(self, x)


def net(forward):
    return Net(forward, a=nn.Linear(4, 3), b=nn.Linear(3, 2))


CHAINS = {
    "view": lambda m, x: m.b(torch.relu(m.a(x.view(x.size(0), -1)))),
    "shape": lambda m, x: m.b(nn.functional.relu(m.a(x.reshape(x.shape[0], -1)))),
    "methods": lambda m, x: m.b(m.a(x.flatten(1)).tanh()),
    "flatten": lambda m, x: m.b(torch.sigmoid(m.a(torch.flatten(x, start_dim=1)))),
}
OTHERS = {
    "residual": lambda m, x: m.b(m.a(x) + m.a(x)),
    "skip": lambda m, x: m.b(torch.relu(m.a(x))) * 2,
    "branch": lambda m, x: m.b(torch.relu(m.a(x))) if x.sum() > 0 else m.b(m.a(x)),
    "softmax": lambda m, x: torch.softmax(m.b(m.a(x)), 1),
    "last": lambda m, x: torch.relu(m.b(m.a(x))),
    "unused": lambda m, x: m.a(x),
    "whole": lambda m, x: m.b(m.a(torch.flatten(x))),
    "two activations": lambda m, x: m.b(torch.tanh(torch.relu(m.a(x)))),
    "intermediate": lambda m, x: (m.a(x), m.b(m.a(x)))[0],
}


@pytest.mark.parametrize("name", CHAINS)
def test_chains(name):
    layers = chain(net(CHAINS[name]))
    assert [(layer.name, layer.inputs, layer.outputs) for layer in layers] == [("a", 4, 3), ("b", 3, 2)]
    assert layers[0].activation in ("relu", "tanh", "sigmoid") and layers[1].activation is None


@pytest.mark.parametrize("name", OTHERS)
def test_others(name):
    assert isinstance(chain(net(OTHERS[name])), str)


def test_sequences():
    assert chain(nn.Linear(3, 2, bias=False))[0].bias is False
    nested = nn.Sequential(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), nn.Identity(), nn.Dropout(0.0), nn.Linear(4, 2))
    assert [layer.name for layer in chain(nested)] == ["0.0", "3"]
    twice = nn.Linear(3, 3)
    assert "twice" in chain(nn.Sequential(twice, nn.ReLU(), twice))
    assert "LayerNorm" in chain(nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3), nn.Linear(3, 2)))
