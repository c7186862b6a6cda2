"""Every loader on a small generated file of its form."""

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from dataset_forms import FORMS, adult_csv, mnist_idx, mnist_npz, purchase_tgz, tgz

from dosimeter import InputError, datasets
from dosimeter.datasets import Dataset, load, names
from dosimeter.datasets.catalogue import CATALOGUE

NAMES = (
    *(
        "digits",
        "breast_cancer",
        "wine",
        "adult",
        "adult_all",
        "purchase100",
        "texas100",
        "location30",
        "mnist",
        "fashion_mnist",
    ),
    *("cifar10", "sst2", "wikitext2", "german_credit", "bank_marketing", "credit_default"),
)


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_what_goes_in_comes_out(form, tmp_path):
    made = form(rng())
    found = load(made.name, folder=made.write(tmp_path, inside=True), download=False, verify=False)
    assert found.name == made.name and len(found) == len(made.X)
    if found.task in ("tabular", "image"):
        assert found.X.dtype == np.float32
        assert found.X.min() >= 0 and found.X.max() <= 1
        np.testing.assert_array_equal(found.X, np.asarray(made.X, np.float32))
    else:
        assert found.X.dtype == np.dtypes.StringDType()
        assert found.X.tolist() == made.X
    if made.y is None:
        assert found.y is None
    else:
        assert found.y.dtype == np.int64
        np.testing.assert_array_equal(found.y, made.y)
        assert found.y.max() < len(found.class_names)
    if found.task == "tabular":
        assert len(found.feature_names) == found.X.shape[1] == len(set(found.feature_names))
    for name, values in made.raw.items():
        assert found.raw[name].tolist() == values
    assert next(iter(made.files)) in found.source and "not verified" in found.source


def test_the_forms_cover_the_catalogue():
    made = {(form(rng()).name, tuple(form(rng()).files)) for form in FORMS}
    assert made == {(name, tuple(f.name for f in form.files)) for name, e in CATALOGUE.items() for form in e.forms}


def test_names():
    assert names() == NAMES


@pytest.mark.parametrize(
    ("name", "shape", "counts"),
    [  # the shapes and class counts that scikit-learn documents
        ("digits", (1797, 64), [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]),
        ("breast_cancer", (569, 30), [212, 357]),
        ("wine", (178, 13), [59, 71, 48]),
    ],
)
def test_bundled(name, shape, counts):
    found = load(name, download=False)
    assert found.X.shape == shape and found.X.dtype == np.float32 and found.task == "tabular"
    assert np.bincount(found.y).tolist() == counts
    assert (found.X.min(), found.X.max()) == (0, 1)
    assert len(found.feature_names) == shape[1] and len(found.class_names) == len(counts)
    assert "scikit-learn" in found.source


def test_digits_are_the_pixels_over_sixteen():
    from sklearn.datasets import load_digits

    np.testing.assert_array_equal(load("digits").X * 16, load_digits().data)


def test_adult_columns_by_name(tmp_path):
    made = adult_csv(rng())
    found = load("adult", folder=made.write(tmp_path), verify=False)
    assert len(found.feature_names) == 104
    for name in ("race=White", "native-country=Outlying-US(Guam-USVI-etc)", "sex=Male"):
        column, _, category = name.partition("=")
        assert (found.X[:, found.feature_names.index(name)] == (found.raw[column] == category)).all()
    assert not any("Never-worked" in name or "?" in name for name in found.feature_names)
    ages = found.raw["age"].astype(float)
    np.testing.assert_allclose(found.X[:, found.feature_names.index("age")], (ages - 17) / 73, atol=1e-7)


def test_bits_in_blocks(tmp_path, monkeypatch):
    """Lines that lie across blocks, Windows line ends and a missing last newline change nothing."""
    from dosimeter.datasets import bits

    made = purchase_tgz(rng())
    monkeypatch.setattr(bits, "_BLOCK", 1000)
    np.testing.assert_array_equal(load("purchase100", folder=made.write(tmp_path), verify=False).X, made.X)
    lines = [",".join(map(str, [k + 1, *row])) for k, row in zip(made.y, made.X.tolist(), strict=True)]
    (tmp_path / "dataset_purchase.tgz").write_bytes(tgz(dataset_purchase="\r\n".join(lines).encode()))
    found = load("purchase100", folder=tmp_path, verify=False)
    np.testing.assert_array_equal(found.X, made.X)
    np.testing.assert_array_equal(found.y, made.y)
    quoted = [",".join(f'"{c}"' for c in line.split(",")) for line in lines]
    (tmp_path / "dataset_purchase.tgz").write_bytes(tgz(dataset_purchase="\n".join(quoted).encode()))
    again = load("purchase100", folder=tmp_path, verify=False)
    assert again.fingerprint == found.fingerprint


def test_order_of_places(tmp_path, monkeypatch):
    made = [adult_csv(rng(seed)) for seed in range(3)]
    folder, data, cache = (tmp_path / part for part in ("folder", "data", "cache"))
    made[2].write(cache / "dosimeter", inside=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    np.testing.assert_array_equal(load("adult", verify=False).X, made[2].X)
    monkeypatch.setenv("DOSIMETER_DATA", str(made[1].write(data)))
    np.testing.assert_array_equal(load("adult", verify=False).X, made[1].X)
    folder.mkdir()
    np.testing.assert_array_equal(load("adult", folder=folder, verify=False).X, made[1].X)
    np.testing.assert_array_equal(load("adult", folder=made[0].write(folder), verify=False).X, made[0].X)


def test_files_whose_names_do_not_tell_the_set_must_lie_in_its_own_folder(tmp_path):
    mnist_idx(rng()).write(tmp_path)
    with pytest.raises(InputError, match="fashion_mnist is not in"):
        load("fashion_mnist", folder=tmp_path, download=False)


def test_cache_is_under_home_without_an_absolute_xdg_folder(monkeypatch, tmp_path):
    from dosimeter.datasets.loading import cache_folder

    monkeypatch.setenv("HOME", str(tmp_path))
    for value in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert cache_folder() == tmp_path / ".cache" / "dosimeter"


def test_absent_says_where_from_which_file_and_where_to(tmp_path, monkeypatch):
    with pytest.raises(InputError) as caught:
        load("purchase100", folder=tmp_path, download=False)
    message = str(caught.value)
    for part in (
        *("purchase100", "https://github.com/privacytrustlab/datasets", "dataset_purchase.tgz", "purchase100.npz"),
        *("DOSIMETER_DATA", "folder=", str(tmp_path), "download=False"),
    ):
        assert part in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"name": "imagenet"}, "name must be one of digits"),
        ({"name": 3}, "name must be one of"),
        ({"name": "adult", "folder": 3}, "folder must be the path"),
        ({"name": "adult", "folder": "/no/such/folder"}, "folder is .* not a folder"),
        ({"name": "adult", "download": "no"}, "download must be True or False"),
        ({"name": "adult", "verify": 1}, "verify must be True or False"),
    ],
)
def test_bad_arguments(arguments, words):
    name = arguments.pop("name")
    with pytest.raises(InputError, match=words):
        load(name, **arguments)


def test_a_data_folder_that_is_none(monkeypatch):
    monkeypatch.setenv("DOSIMETER_DATA", "/no/such/folder")
    with pytest.raises(InputError, match=r"DOSIMETER_DATA is .* not a folder"):
        load("adult")
    assert len(load("wine")) == 178
    monkeypatch.setenv("DOSIMETER_DATA", "")
    with pytest.raises(InputError, match="adult is not in"):
        load("adult", download=False)


def test_arrays_are_read_only_and_the_set_is_frozen(tmp_path):
    found = load("mnist", folder=mnist_npz(rng()).write(tmp_path), verify=False)
    for array in (found.X, found.y, found.raw["split"]):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[1]
    with pytest.raises(AttributeError):
        found.name = "other"
    with pytest.raises(TypeError):
        found.raw["split"] = None
    assert isinstance(found, Dataset) and "array(" not in repr(found)


def test_nothing_but_the_base_is_imported():
    """Data stand at the very left of the way the data goes."""
    below = ("_validate", "_progress", "_files", "reading", "columns", "evidence", "estimate", "records")
    base = {f"dosimeter.{name}" for name in below} | {"dosimeter"}
    folder = Path(datasets.__file__).parent
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            module = getattr(node, "module", None) or ""
            if isinstance(node, ast.ImportFrom) and module.startswith("dosimeter"):
                assert module in base or module.startswith("dosimeter.datasets"), (path.name, module)


def test_importing_is_cheap():
    heavy = ("sklearn", "pyarrow", "rich", "torch", "scipy.optimize")
    code = f"import sys, dosimeter.datasets; print(*(n for n in {heavy} if n in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
