"""Torch modules: the same losses as every other route, and the module left as it was."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.linear_model import LogisticRegression

from dosimeter import InputError
from dosimeter.models import access, dataset

torch = pytest.importorskip("torch", reason="torch modules need torch: dosimeter[torch]")
nn = torch.nn


def twin(model):
    """The logistic regression as a module in double precision."""
    module = nn.Linear(model.coef_.shape[1], model.coef_.shape[0]).double()
    with torch.no_grad():
        module.weight.copy_(torch.from_numpy(model.coef_))
        module.bias.copy_(torch.from_numpy(model.intercept_))
    return module


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return X, y, LogisticRegression(max_iter=1000).fit(X, y)


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return X, y, LogisticRegression().fit(X, y)


@pytest.mark.parametrize("name", ["iris", "cancer"])
def test_all_routes_agree(name, request, tmp_path):
    X, y, model = request.getfixturevalue(name)
    module = twin(model)  # (n, 3) for iris, (n, 1) for the binary one
    own = access(module).losses(X, y)
    assert own.kind == "logits"
    assert access(model).losses(X, y).values == pytest.approx(own.values, abs=1e-9)
    near = np.abs(own.values) < 15
    assert access(model.predict_proba).losses(X, y).values[near] == pytest.approx(own.values[near], abs=1e-6)
    assert access(lambda rows: module(torch.from_numpy(rows)), outputs="logits").losses(X, y).values == pytest.approx(
        own.values
    )
    single = access(twin(model).float()).losses(X, y)
    assert single.values == pytest.approx(own.values, abs=1e-3)
    pytest.importorskip("onnxruntime", reason="the ONNX route needs onnxruntime")
    skl2onnx = pytest.importorskip("skl2onnx", reason="the tests convert with skl2onnx")
    path = tmp_path / "m.onnx"
    path.write_bytes(skl2onnx.to_onnx(model, X[:1].astype(np.float32)).SerializeToString())
    close = np.abs(own.values) < 8
    assert access(path).losses(X, y).values[close] == pytest.approx(own.values[close], abs=1e-3)


def test_saturated_logits_keep_the_tail():
    module = nn.Linear(1, 1, bias=False)
    nn.init.constant_(module.weight, 50.0)
    X = np.linspace(-10, 10, 21)[:, None]
    y = (X[:, 0] > 0).astype(int)
    kept = access(module).losses(X, y)
    assert kept.values == pytest.approx(-50 * np.abs(X[:, 0]))
    assert kept.clipped == 0
    soft = access(nn.Sequential(module, nn.Sigmoid()), outputs="probabilities").losses(X, y)
    assert soft.clipped == 20
    assert soft.values.min() > -20


class Net(nn.Module):
    """Frozen normalisation within a module in training, dropout, and a record of its modes."""

    def __init__(self):
        super().__init__()
        self.norm, self.drop, self.out = nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 3)
        self.norm.eval()
        self.seen = []

    def forward(self, x):
        self.seen.append((self.training, self.norm.training, torch.is_grad_enabled(), len(x)))
        return self.out(self.drop(self.norm(x)))


def test_eval_mode_is_restored_part_by_part(iris):
    X, y, _ = iris
    net = Net()
    assert (net.training, net.norm.training, net.drop.training) == (True, False, True)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    first = access(net, batch_size=40).losses(X, y)
    assert (net.training, net.norm.training, net.drop.training) == (True, False, True)
    assert net.seen == [(False, False, False, 40)] * 3 + [(False, False, False, 30)]
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in net.parameters())
    assert access(net).losses(X, y).values == pytest.approx(first.values, abs=1e-6)
    assert torch.is_grad_enabled()


def test_eval_mode_is_restored_after_a_failure(iris):
    X, y, _ = iris
    net = Net()
    with pytest.raises(InputError, match=r"failed on records 0 to \d+ \(RuntimeError"):
        access(net).losses(X[:, :2], y)
    assert (net.training, net.norm.training) == (True, False)


def test_softmax_at_the_end_is_noticed(iris):
    X, y, model = iris
    soft = nn.Sequential(twin(model), nn.Softmax(dim=1))
    found = access(soft).losses(X, y)
    assert found.kind == "probabilities"
    assert "taken for probabilities" in found.warnings[0]
    assert found.values == pytest.approx(access(model).losses(X, y).values, abs=1e-6)
    log = nn.Sequential(twin(model), nn.LogSoftmax(dim=1))
    assert access(log).losses(X, y).values == pytest.approx(found.values, abs=1e-6)
    stated = access(log, outputs="log-probabilities").losses(X, y)
    assert stated.kind == "log-probabilities"
    sigmoid = nn.Sequential(nn.Linear(4, 1), nn.Sigmoid())
    binary = access(sigmoid).losses(X, np.minimum(y, 1))
    assert "probabilities of class 1" in binary.warnings[0]
    assert binary.values == pytest.approx(
        access(sigmoid[0], outputs="logits").losses(X, np.minimum(y, 1)).values, abs=1e-4
    )


def test_types_of_records(iris):
    X, y, model = iris
    module = twin(model).float()
    base = access(module).losses(X, y).values
    for rows in (X.astype(np.float32), torch.from_numpy(X), X.tolist(), np.asfortranarray(X)):
        assert access(module).losses(rows, torch.from_numpy(y)).values == pytest.approx(base, abs=1e-6)
    pixels = np.arange(24, dtype=np.uint8).reshape(6, 4)
    assert access(module).outputs(pixels).values == pytest.approx(
        access(module).outputs(pixels.astype(np.float32)).values
    )
    bag = nn.EmbeddingBag(10, 3)
    assert access(bag).outputs(np.array([[1, 2], [3, 4]])).values.shape == (2, 3)
    half = access(twin(model).to(torch.bfloat16)).outputs(X)
    assert half.values.dtype == np.float32
    with pytest.raises(InputError, match="which a torch module cannot take"):
        access(module).outputs(np.array([["a"] * 4]))


def test_device_goes_and_comes_back(iris):
    X, y, model = iris
    module = twin(model)
    assert access(module, device="cpu").losses(X, y).values.size == 150
    assert access(module, device=torch.device("cpu")).losses(X, y).values.size == 150
    assert module.weight.device.type == "cpu"
    with pytest.raises(InputError, match="device 'abacus' cannot be used here"):
        access(module, device="abacus")
    if torch.cuda.is_available():
        assert access(module, device="cuda").losses(X, y).values == pytest.approx(access(module).losses(X, y).values)
        assert module.weight.device.type == "cpu"


def test_a_module_without_data(iris):
    X, y, model = iris
    with pytest.raises(InputError, match=r"cannot be read as an array|failed on records"):
        access(twin(model).to("meta")).losses(X, y)


def test_moved_to_a_device_without_data(iris):
    """On the meta device nothing can be computed; the module must come home all the same."""
    X, y, _ = iris

    class Stays(nn.Linear):
        moves = ()

        def to(self, *args, **kwargs):
            self.moves = (*self.moves, str(args[0]))
            return self

    module = Stays(4, 3)
    with pytest.raises(InputError):
        access(module, device="meta").losses(X, y)
    assert module.moves == ("meta", "cpu")


def test_out_of_memory_halves_the_batch(iris):
    X, y, model = iris

    class Small(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = twin(model)

        def forward(self, x):
            if len(x) > 50:
                raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
            return self.inner(x)

    assert access(Small()).losses(X, y).values == pytest.approx(access(twin(model)).losses(X, y).values)


def test_wrong_outputs(iris):
    X, _, _ = iris

    class Pair(nn.Module):
        def forward(self, x):
            return x, x

    class Broken(nn.Module):
        def forward(self, x):
            return torch.where(x > 7.6, torch.nan, x)

    with pytest.raises(InputError, match="returns a tuple"):
        access(Pair()).outputs(X)
    with pytest.raises(InputError, match=f"record {int(np.argmax((X > 7.6).any(axis=1)))} has an output that is NaN"):
        access(Broken(), batch_size=11).outputs(X)
    with pytest.raises(InputError, match=r"shape \(150, 2, 2\)"):
        access(nn.Unflatten(1, (2, 2))).outputs(X)


def test_torch_datasets(iris):
    X, y, _ = iris
    data = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(y))
    for given in (data, torch.utils.data.Subset(data, range(150))):
        a, b = dataset(given)
        assert np.array_equal(a, X)
        assert np.array_equal(b, y)
    assert dataset((torch.from_numpy(X), torch.from_numpy(y)))[0].dtype == np.float64
    hot = [(torch.zeros(3), torch.tensor([0, 1]))]
    with pytest.raises(InputError, match=r"label of shape \(2,\)"):
        dataset(torch.utils.data.Subset(hot, [0]))
    with pytest.raises(InputError, match="holds 1 tensors"):
        dataset(torch.utils.data.TensorDataset(torch.from_numpy(X)))

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter([])

    with pytest.raises(InputError, match="must be a pair"):
        dataset(Stream())
