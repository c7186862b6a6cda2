"""Where each data set comes from, in which files, and how these are known to be the right ones.

A file is checked by its published SHA-256 where there is one, and the data by the fingerprint of the encoded records
where a copy could be examined. Where neither is known (Purchase-100, Texas-100, the hub's SST-2) a download is trusted
on first use: its SHA-256 is written beside it and must hold from then on; the number of records is always checked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dosimeter.datasets import bits, census, images, text
from dosimeter.datasets._raw_files import MEGA
from dosimeter.datasets.dataset import Task
from dosimeter.datasets.tables import Contents, Schema

_UCI = "https://archive.ics.uci.edu"
_OLD_UCI = f"{_UCI}/ml/machine-learning-databases"
_SHOKRI = "Shokri et al., IEEE S&P 2017, https://github.com/privacytrustlab/datasets"
_HUB = "https://huggingface.co/datasets/stanfordnlp/sst2/resolve/main/data"
_TOKENS = "https://raw.githubusercontent.com/pytorch/examples/main/word_language_model/data/wikitext-2"


@dataclass(frozen=True)
class File:
    """One file by its name, where it can be fetched, its SHA-256 if known, and the most bytes it may have."""

    name: str
    urls: tuple[str, ...] = ()
    sha256: str | None = None
    limit: int = 64 * MEGA


@dataclass(frozen=True)
class FileForm:
    """One form in which a data set is available: its files together, their reader, and what must come out."""

    files: tuple[File, ...]
    read: Callable[[Sequence[Path]], Contents]
    records: int
    fingerprint: str | None = None
    flat: bool = True  # False: only in a folder named after the set, as the names of the files do not tell which it is


@dataclass(frozen=True)
class CatalogueEntry:
    """A data set: its origin in words, its task, its forms, the compact one first."""

    origin: str
    task: Task
    forms: tuple[FileForm, ...]


def _local(
    name: str, read: Callable[[Sequence[Path]], Contents], records: int, fingerprint: str | None = None
) -> FileForm:
    return FileForm((File(name),), read, records, fingerprint)


def _shokri(name: str, limit: int) -> File:
    urls = (f"https://github.com/privacytrustlab/datasets/raw/master/{name}",)
    older = (f"https://www.comp.nus.edu.sg/~reza/files/{name}",) if name != "dataset_location.tgz" else ()
    return File(name, urls + older, None, limit)


def _idx(mirrors: Sequence[str], *sha256: str) -> tuple[File, ...]:
    names = [f"{part}-{what}-ubyte.gz" for part in ("train", "t10k") for what in ("images-idx3", "labels-idx1")]
    return tuple(
        File(name, tuple(f"{mirror}/{name}" for mirror in mirrors), digest)
        for name, digest in zip(names, sha256, strict=True)
    )


# Fingerprints of the encoded records, computed from copies that were compared with the published files.
ADULT = "ae537af5918f864e97fd7607b134edd47c7c7df61e8ca9d9a12b06d4ded22403"
ADULT_ALL = "15714a988429b5b532d748c66907d0a8fedada59b04a217557f0269882b0e88b"
GERMAN = "24428d008c42c38d6c7619e7a784a512403f40161a92fce20ddfbd18e511971e"
BANK = "08fb0a822ae6bfa1622eb2b453b0cae479dfa32d6a281c6566e5b6f850dba7f0"
CREDIT = "ac530a7a1b8d55186babe1546d75348d886a827003480ad2c44609f0fae1f3d3"
LOCATION = "77801a713030caf51803779a10f800cd002f19630882783484b1e8356c2746ad"
MNIST = "1d20741f60b9179ea7124932dd9ff44c986a5d74e46ad6debc82da57bd6a1d7a"
FASHION = "6534a762ad2e9b585e0b7342abf6ecc6b81e52bab6a874bf8c70b0e77448255d"
CIFAR_20K = "8bb9d137812f91e394ac305e5e983a2bad23f438bf5410d563e24bc939db9320"
SST2 = "92524e9f37b4ca79a0a2d44ce3ed4834fe1e54e98eb6c8e318e3c4db6490d785"
WIKITEXT = "a7fa4aa08de40fea470caf6d216aec9a9990ae07f9d6ca7eff2bdd6e612fbb2e"


def _adult(schema: Schema, records: int, fingerprint: str) -> CatalogueEntry:
    """Adult with a schema: without the incomplete rows, or with them."""
    files = (
        File(
            "adult.data",
            (f"{_OLD_UCI}/adult/adult.data",),
            "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
        ),
        File(
            "adult.test",
            (f"{_OLD_UCI}/adult/adult.test",),
            "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
        ),
    )
    compact = _local("adult.csv.gz", partial(census.adult_csv, schema=schema), records, fingerprint)
    published = FileForm(files, partial(census.adult_uci, schema=schema), records, fingerprint)
    return CatalogueEntry(
        f"UCI Adult (Becker and Kohavi 1996), {_UCI}/dataset/2/adult", "tabular", (compact, published)
    )


CATALOGUE: dict[str, CatalogueEntry] = {
    "adult": _adult(census.ADULT, 45_222, ADULT),
    "adult_all": _adult(census.ADULT_ALL, 48_842, ADULT_ALL),
    "purchase100": CatalogueEntry(
        f"Purchase-100 ({_SHOKRI})",
        "tabular",
        (
            _local("purchase100.npz", bits.arrays(600, 100), 197_324),
            FileForm(
                (_shokri("dataset_purchase.tgz", 512 * MEGA),),
                bits.archive(600, 100, features="dataset_purchase"),
                197_324,
            ),
        ),
    ),
    "texas100": CatalogueEntry(
        f"Texas-100 ({_SHOKRI})",
        "tabular",
        (
            _local("texas100.npz", bits.arrays(6_169, 100), 67_330),
            FileForm(
                (_shokri("dataset_texas.tgz", 512 * MEGA),),
                bits.archive(6_169, 100, features="texas/100/feats", labels="texas/100/labels"),
                67_330,
            ),
        ),
    ),
    "location30": CatalogueEntry(
        f"Location-30, check-ins in Bangkok ({_SHOKRI})",
        "tabular",
        (
            _local("location30.npz", bits.arrays(446, 30), 5_010, LOCATION),
            FileForm(
                (_shokri("dataset_location.tgz", 64 * MEGA),),
                bits.archive(446, 30, features="bangkok"),
                5_010,
                LOCATION,
            ),
        ),
    ),
    "mnist": CatalogueEntry(
        "MNIST (LeCun, Bottou, Bengio and Haffner 1998)",
        "image",
        (
            _local("mnist.npz", images.mnist_arrays(images.DIGITS), 70_000, MNIST),
            FileForm(
                _idx(
                    (
                        "https://ossci-datasets.s3.amazonaws.com/mnist",
                        "https://storage.googleapis.com/cvdf-datasets/mnist",
                    ),
                    "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                    "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                    "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                    "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                ),
                images.mnist_idx(images.DIGITS),
                70_000,
                MNIST,
                flat=False,
            ),
        ),
    ),
    "fashion_mnist": CatalogueEntry(
        "Fashion-MNIST (Xiao, Rasul and Vollgraf 2017), https://github.com/zalandoresearch/fashion-mnist",
        "image",
        (
            _local("fashion_mnist.npz", images.mnist_arrays(images.CLOTHES), 70_000, FASHION),
            FileForm(
                _idx(
                    (
                        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion",
                        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
                    ),
                    "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                    "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
                    "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
                    "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
                ),
                images.mnist_idx(images.CLOTHES),
                70_000,
                FASHION,
                flat=False,
            ),
        ),
    ),
    "cifar10": CatalogueEntry(
        "CIFAR-10 (Krizhevsky 2009), https://www.cs.toronto.edu/~kriz/cifar.html",
        "image",
        (
            FileForm(
                (
                    File(
                        "cifar-10-binary.tar.gz",
                        ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
                        "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
                        256 * MEGA,
                    ),
                ),
                images.cifar_binary,
                60_000,
            ),
            _local("cifar10_20k.npz", images.cifar_deltas, 30_000, CIFAR_20K),
        ),
    ),
    "sst2": CatalogueEntry(
        "SST-2 (Socher et al. 2013; GLUE, Wang et al. 2019), https://gluebenchmark.com",
        "text",
        (
            _local("sst2.csv.gz", text.sst2_csv, 70_042, SST2),
            FileForm(
                (
                    File(
                        "SST-2.zip",
                        ("https://dl.fbaipublicfiles.com/glue/data/SST-2.zip",),
                        "d67e16fb55739c1b32cdce9877596db1c127dc322d93c082281f64057c16deaa",
                    ),
                ),
                text.sst2_glue,
                68_221,
            ),
            FileForm(
                tuple(
                    File(name, (f"{_HUB}/{name}",))
                    for name in (
                        "train-00000-of-00001.parquet",
                        "validation-00000-of-00001.parquet",
                    )
                ),
                text.sst2_hub,
                68_221,
                flat=False,
            ),
        ),
    ),
    "wikitext2": CatalogueEntry(
        "WikiText-2 (Merity, Xiong, Bradbury and Socher 2016), Creative Commons Attribution-ShareAlike",
        "language",
        (
            _local("wikitext2.npz", text.wikitext_arrays, 29_119, WIKITEXT),
            FileForm(
                tuple(
                    File(f"{part}.txt", (f"{_TOKENS}/{part}.txt",), digest)
                    for part, digest in (
                        ("train", "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f"),
                        ("valid", "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8"),
                        ("test", "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0"),
                    )
                ),
                text.wikitext_files,
                29_119,
                WIKITEXT,
                flat=False,
            ),
        ),
    ),
    "german_credit": CatalogueEntry(
        f"UCI Statlog German Credit (Hofmann 1994), {_UCI}/dataset/144",
        "tabular",
        (
            _local("german_credit.csv.gz", census.german_csv, 1_000, GERMAN),
            FileForm(
                (File("german.data", (f"{_OLD_UCI}/statlog/german/german.data",)),),
                census.german_uci,
                1_000,
                GERMAN,
            ),
        ),
    ),
    "bank_marketing": CatalogueEntry(
        f"UCI Bank Marketing, bank-additional-full (Moro, Rita and Cortez 2014), {_UCI}/dataset/222",
        "tabular",
        (
            _local("bank_marketing.csv.gz", census.bank_csv, 41_188, BANK),
            FileForm(
                (File("bank-additional.zip", (f"{_OLD_UCI}/00222/bank-additional.zip",)),),
                census.bank_uci,
                41_188,
                BANK,
            ),
            FileForm(
                (File("bank+marketing.zip", (f"{_UCI}/static/public/222/bank+marketing.zip",)),),
                census.bank_uci,
                41_188,
                BANK,
            ),
        ),
    ),
    "credit_default": CatalogueEntry(
        f"UCI Default of Credit Card Clients (Yeh 2009), {_UCI}/dataset/350",
        "tabular",
        (
            _local("credit_default.csv.gz", census.credit_csv, 30_000, CREDIT),
            FileForm(
                (File("dataset_42477.pq", ("https://data.openml.org/datasets/0004/42477/dataset_42477.pq",)),),
                census.credit_openml,
                30_000,
                CREDIT,
            ),
        ),
    ),
}
