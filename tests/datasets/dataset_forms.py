"""Small generated files in every form that a data set may come in, with the records that must come out of them."""

import gzip
import io
import tarfile
import zipfile
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dosimeter.datasets import census

ROWS = 12


@dataclass
class Made:
    """The files of one form by name, and what loading them must give."""

    name: str
    files: dict[str, bytes]
    X: object
    y: object
    raw: dict = field(default_factory=dict)

    def write(self, folder, *, inside=False):
        target = folder / self.name if inside else folder
        target.mkdir(parents=True, exist_ok=True)
        for name, data in self.files.items():
            (target / name).write_bytes(data)
        return folder


def npz(**arrays):
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


def tgz(**members):
    return tgz_of([(name.replace("__", "/"), data) for name, data in members.items()])


def tgz_of(members):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return stream.getvalue()


def zipped(**members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


def csv_gz(rows, header):
    quoted = [",".join(f'"{c}"' if "," in c else c for c in row) for row in rows]
    return gzip.compress("\n".join([",".join(header), *quoted, ""]).encode())


def records(schema, rng, rows=ROWS):
    """Random rows that the schema allows, as texts, with their labels' codes."""
    made = []
    for _ in range(rows):
        row = {}
        for name, kind in schema.columns.items():
            if isinstance(kind[0], str):
                row[name] = str(rng.choice(kind))
            else:
                row[name] = str(int(rng.integers(np.ceil(kind[0]), np.floor(kind[1]) + 1)))
        row[schema.label] = str(rng.choice(list(schema.classes)))
        made.append(row)
    return made


def encoded(schema, rows):
    """The encoding once more, a cell at a time."""
    out = []
    for row in rows:
        line = []
        for name, kind in schema.columns.items():
            if isinstance(kind[0], str):
                line += [1.0 if row[name] == category else 0.0 for category in kind]
            else:
                line.append((float(row[name]) - kind[0]) / (kind[1] - kind[0]))
        out.append(line)
    codes = list(schema.classes)
    return np.array(out, dtype=np.float32), np.array([codes.index(row[schema.label]) for row in rows])


def _table(name, schema, write, rng):
    rows = records(schema, rng)
    X, y = encoded(schema, rows)
    return Made(name, write(rows), X, y)


def adult_csv(rng):
    rows = records(census.ADULT, rng)
    splits = ["train" if i % 3 else "test" for i in range(ROWS)]
    rows[2]["occupation"] = rows[5]["workclass"] = rows[5]["native-country"] = "?"
    header = [*rows[0], "split"]
    kept = [i for i in range(ROWS) if i not in (2, 5)]
    X, y = encoded(census.ADULT, [rows[i] for i in kept])
    data = csv_gz([[*row.values(), part] for row, part in zip(rows, splits, strict=True)], header)
    raw = {"split": [splits[i] for i in kept], "age": [rows[i]["age"] for i in kept]}
    return Made("adult", {"adult.csv.gz": data}, X, y, raw)


def adult_uci(rng):
    rows = records(census.ADULT, rng)
    rows[1]["workclass"] = "?"
    X, y = encoded(census.ADULT, [row for i, row in enumerate(rows) if i != 1])
    lines = [", ".join(row.values()) for row in rows]
    files = {
        "adult.data": "\n".join([*lines[:7], "", ""]).encode(),
        "adult.test": "\n".join(["|1x3 Cross validator", *(f"{line}." for line in lines[7:]), "", ""]).encode(),
    }
    return Made("adult", files, X, y, {"split": ["train"] * 6 + ["test"] * 5})


def adult_all_csv(rng):
    rows = records(census.ADULT_ALL, rng)
    rows[2]["occupation"] = rows[5]["workclass"] = rows[5]["native-country"] = "?"
    X, y = encoded(census.ADULT_ALL, rows)
    data = csv_gz([[*row.values(), "train"] for row in rows], [*rows[0], "split"])
    return Made("adult_all", {"adult.csv.gz": data}, X, y, {"split": ["train"] * ROWS})


def adult_all_uci(rng):
    rows = records(census.ADULT_ALL, rng)
    rows[1]["workclass"] = "?"
    X, y = encoded(census.ADULT_ALL, rows)
    lines = [", ".join(row.values()) for row in rows]
    files = {
        "adult.data": "\n".join(lines[:7]).encode(),
        "adult.test": "\n".join(["|1x3 Cross validator", *(f"{line}." for line in lines[7:])]).encode(),
    }
    return Made("adult_all", files, X, y, {"split": ["train"] * 7 + ["test"] * (ROWS - 7)})


def german_csv(rng):
    def write(rows):
        return {"german_credit.csv.gz": csv_gz([list(row.values()) for row in rows], list(rows[0]))}

    return _table("german_credit", census.GERMAN, write, rng)


def german_uci(rng):
    def write(rows):
        return {"german.data": "".join(" ".join(row.values()) + " \n" for row in rows).encode()}

    return _table("german_credit", census.GERMAN, write, rng)


def _bank_rows(rows):
    header = list(rows[0])
    at = header.index("campaign")  # duration, which must not be used, stands before it
    header.insert(at, "duration")
    cells = [list(row.values()) for row in rows]
    for row in cells:
        row.insert(at, "261")
    return header, cells


def bank_csv(rng):
    def write(rows):
        header, cells = _bank_rows(rows)
        return {"bank_marketing.csv.gz": csv_gz(cells, header)}

    return _table("bank_marketing", census.BANK, write, rng)


def _bank_zip(rows):
    header, cells = _bank_rows(rows)
    lines = [";".join(f'"{cell}"' for cell in row) for row in (header, *cells)]
    return zipped(**{"bank-additional/bank-additional-full.csv": "\n".join(lines), "__MACOSX/x": "y"})


def bank_uci(rng):
    return _table("bank_marketing", census.BANK, lambda rows: {"bank-additional.zip": _bank_zip(rows)}, rng)


def bank_nested(rng):
    def write(rows):
        return {"bank+marketing.zip": zipped(**{"bank.zip": b"other", "bank-additional.zip": _bank_zip(rows)})}

    return _table("bank_marketing", census.BANK, write, rng)


def credit_csv(rng):
    def write(rows):
        cells = [[str(i + 1), *row.values()] for i, row in enumerate(rows)]
        return {"credit_default.csv.gz": csv_gz(cells, ["ID", *rows[0]])}

    return _table("credit_default", census.CREDIT, write, rng)


def credit_openml(rng):
    def write(rows):
        columns = {f"x{i}": [float(row[name]) for row in rows] for i, name in enumerate(census.CREDIT.columns, 1)}
        columns["y"] = pa.array([row[census.CREDIT.label] for row in rows]).dictionary_encode()
        stream = io.BytesIO()
        pq.write_table(pa.table(columns), stream)
        return {"dataset_42477.pq": stream.getvalue()}

    return _table("credit_default", census.CREDIT, write, rng)


def _bits(rng, width, classes):
    return rng.integers(0, 2, (ROWS, width), dtype=np.uint8), rng.integers(0, classes, ROWS)


def _bit_lines(x, heads):
    return "".join(
        ",".join([*head, *map(str, row)]) + "\n" for head, row in zip(heads, x.tolist(), strict=True)
    ).encode()


def purchase_npz(rng):
    x, y = _bits(rng, 600, 100)
    return Made("purchase100", {"purchase100.npz": npz(x=x, y=y.astype(np.uint8))}, x, y)


def purchase_one_hot(rng):
    x, y = _bits(rng, 600, 100)
    data = npz(features=x.astype(np.float64), labels=np.eye(100)[y])
    return Made("purchase100", {"purchase100.npz": data}, x, y)


def purchase_tgz(rng):
    x, y = _bits(rng, 600, 100)
    return Made(
        "purchase100", {"dataset_purchase.tgz": tgz(dataset_purchase=_bit_lines(x, [[str(k + 1)] for k in y]))}, x, y
    )


def texas_npz(rng):
    x, y = _bits(rng, 6169, 100)
    y[0] = 99
    return Made("texas100", {"texas100.npz": npz(X=x, Y=(y + 1).astype(np.int32))}, x, y)


def texas_tgz(rng):
    x, y = _bits(rng, 6169, 100)
    labels = "".join(f"{k + 1}\n" for k in y).encode()
    data = tgz(texas__50__feats=b"0\n", texas__100__labels=labels, texas__100__feats=_bit_lines(x, [[]] * ROWS))
    return Made("texas100", {"dataset_texas.tgz": data}, x, y)


def location_npz(rng):
    x, y = _bits(rng, 446, 30)
    return Made("location30", {"location30.npz": npz(x=x, y=y.astype(np.uint8))}, x, y)


def location_tgz(rng):
    x, y = _bits(rng, 446, 30)
    lines = _bit_lines(x, [[f'"{k + 1}"'] for k in y])
    return Made("location30", {"dataset_location.tgz": tgz_of([("./bangkok", lines)])}, x, y)


def _images(rng, *shape):
    pixels = [rng.integers(0, 256, (count, *shape), dtype=np.uint8) for count in (7, 5)]
    labels = [rng.integers(0, 10, count, dtype=np.uint8) for count in (7, 5)]
    return pixels, labels, {"split": ["train"] * 7 + ["test"] * 5}


def _image_made(name, files, pixels, labels, raw):
    x = np.concatenate(pixels)
    return Made(name, files, x.astype(np.float32) / np.float32(255), np.concatenate(labels), raw)


def mnist_npz(rng, name="mnist"):
    (a, b), (k, m), raw = _images(rng, 28, 28)
    data = npz(x_train=a, y_train=k, x_test=b, y_test=m)
    return _image_made(name, {f"{name}.npz": data}, (a, b), (k, m), raw)


def fashion_npz(rng):
    return mnist_npz(rng, "fashion_mnist")


def idx(array):
    head = bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
    return gzip.compress(head + array.tobytes(), 1)


def mnist_idx(rng, name="mnist"):
    (a, b), (k, m), raw = _images(rng, 28, 28)
    files = {
        "train-images-idx3-ubyte.gz": idx(a),
        "train-labels-idx1-ubyte.gz": idx(k),
        "t10k-images-idx3-ubyte.gz": idx(b),
        "t10k-labels-idx1-ubyte.gz": idx(m),
    }
    return _image_made(name, files, (a, b), (k, m), raw)


def fashion_idx(rng):
    return mnist_idx(rng, "fashion_mnist")


def deltas(x):
    """The inverse of the decoding of cifar10_20k.npz, a difference at a time."""
    d = x.astype(np.int64)
    d[:, 0] -= d[:, 1]
    d[:, 2] -= d[:, 1]
    for axis in (2, 3):
        d = np.diff(d, axis=axis, prepend=0)
    return (d % 256).astype(np.uint8)


def cifar_npz(rng):
    (a, b), (k, m), raw = _images(rng, 3, 32, 32)
    data = npz(x_train_delta=deltas(a), y_train=k, x_test_delta=deltas(b), y_test=m)
    last = [part.transpose(0, 2, 3, 1) for part in (a, b)]
    return _image_made("cifar10", {"cifar10_20k.npz": data}, last, (k, m), raw)


def cifar_tgz(rng):
    (a, b), (k, m), raw = _images(rng, 3, 32, 32)

    def batch(images, labels):
        return b"".join(bytes([c]) + image.tobytes() for c, image in zip(labels.tolist(), images, strict=True))

    cuts = [slice(0, 2), slice(2, 3), slice(3, 4), slice(4, 5), slice(5, 7)]
    members = [(f"cifar-10-batches-bin/data_batch_{i}.bin", batch(a[c], k[c])) for i, c in enumerate(cuts, 1)]
    members.insert(0, ("cifar-10-batches-bin/test_batch.bin", batch(b, m)))  # the order in the archive says nothing
    members.insert(3, ("cifar-10-batches-bin/readme.html", b"<p>"))
    last = [part.transpose(0, 2, 3, 1) for part in (a, b)]
    return _image_made("cifar10", {"cifar-10-binary.tar.gz": tgz_of(members)}, last, (k, m), raw)


_SENTENCES = ["a gorgeous , witty film", "null", "it 's dull", '"quoted" and , commas', "na", "naïve but sweet"]


def sst2_csv(rng):
    y = rng.integers(0, 2, 6)
    rows = [
        f'{part},{k},"{text.replace(chr(34), chr(34) * 2)}"'
        for part, k, text in zip(_PARTS, y, _SENTENCES, strict=True)
    ]
    data = gzip.compress("\n".join(["split,label,sentence", *rows, ""]).encode())
    return Made("sst2", {"sst2.csv.gz": data}, _SENTENCES, y, {"split": _PARTS})


_PARTS = ["train", "train", "train", "dev", "dev", "test"]


def sst2_glue(rng):
    y = rng.integers(0, 2, 6)
    lines = [f"{text} \t{k}" for text, k in zip(_SENTENCES, y, strict=True)]
    train, dev = ("\n".join(["sentence\tlabel", *part, ""]) for part in (lines[:4], lines[4:]))
    files = {"SST-2/train.tsv": train, "SST-2/dev.tsv": dev, "SST-2/test.tsv": "index\tsentence\n0\tno label\n"}
    return Made("sst2", {"SST-2.zip": zipped(**files)}, _SENTENCES, y, {"split": ["train"] * 4 + ["dev"] * 2})


def sst2_hub(rng):
    y = rng.integers(0, 2, 6)
    files = {}
    for name, part in (("train", slice(0, 4)), ("validation", slice(4, 6))):
        stream = io.BytesIO()
        texts = [text + " " for text in _SENTENCES[part]]
        pq.write_table(pa.table({"idx": list(range(len(texts))), "sentence": texts, "label": y[part]}), stream)
        files[f"{name}-00000-of-00001.parquet"] = stream.getvalue()
    return Made("sst2", files, _SENTENCES, y, {"split": ["train"] * 4 + ["dev"] * 2})


_TEXTS = {
    "train": " \n = Valkyria = \n \n The game takes place in <unk> , 3 @,@ 000 BC . \n It was naïve . \n",
    "valid": " \n = Lobster = \n",
    "test": "\n Robert <unk> is an actor . \n",
}
_LINES = ["= Valkyria =", "The game takes place in <unk> , 3 @,@ 000 BC .", "It was naïve .", "= Lobster ="]


def _wikitext(files):
    raw = {"split": ["train"] * 3 + ["valid", "test"], "line": [1, 3, 4, 1, 1]}
    return Made("wikitext2", files, [*_LINES, "Robert <unk> is an actor ."], None, raw)


def wikitext_npz(rng):
    arrays = {part: np.frombuffer(text.encode(), np.uint8) for part, text in _TEXTS.items()}
    return _wikitext({"wikitext2.npz": npz(**arrays)})


def wikitext_files(rng):
    return _wikitext({f"{part}.txt": text.encode() for part, text in _TEXTS.items()})


FORMS = (
    *(
        adult_csv,
        adult_uci,
        adult_all_csv,
        adult_all_uci,
        german_csv,
        german_uci,
        bank_csv,
        bank_uci,
        bank_nested,
        credit_csv,
        credit_openml,
    ),
    *(purchase_npz, purchase_one_hot, purchase_tgz, texas_npz, texas_tgz, location_npz, location_tgz),
    *(mnist_npz, mnist_idx, fashion_npz, fashion_idx, cifar_npz, cifar_tgz),
    *(sst2_csv, sst2_glue, sst2_hub, wikitext_npz, wikitext_files),
)
