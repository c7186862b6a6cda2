"""Adult (Census Income), German credit, bank marketing, credit default.

Adult has 104 columns, as in the identifiability paper: 6 numbers and 98 categories, which is what remains when the rows
with an unknown value are left out (45 222 of 48 842 rows, of which 30 162 of 32 561 in the source's training part): the
work class "Never-worked" has no complete row and no column. adult_all keeps these rows: an unknown value is a category
of its own, and there are 108 columns. Bank marketing leaves out `duration`, which is known only
after the call that the label is about. Credit default leaves out ID, and codes SEX, EDUCATION and MARRIAGE as
categories, undocumented codes included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dosimeter._validate import InputError
from dosimeter.datasets import _raw_files
from dosimeter.datasets.tables import LIMIT, Contents, Schema, columns_of, encode, read_csv

_COUNTRIES = (
    "Cambodia Canada China Columbia Cuba Dominican-Republic Ecuador El-Salvador England France Germany Greece "
    "Guatemala Haiti Holand-Netherlands Honduras Hong Hungary India Iran Ireland Italy Jamaica Japan Laos Mexico "
    "Nicaragua Outlying-US(Guam-USVI-etc) Peru Philippines Poland Portugal Puerto-Rico Scotland South Taiwan Thailand "
    "Trinadad&Tobago United-States Vietnam Yugoslavia"
)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ADULT = Schema(
    columns={
        "age": (17, 90),
        "workclass": _words("Federal-gov Local-gov Private Self-emp-inc Self-emp-not-inc State-gov Without-pay"),
        "fnlwgt": (12_285, 1_490_400),
        "education": _words(
            "10th 11th 12th 1st-4th 5th-6th 7th-8th 9th Assoc-acdm Assoc-voc Bachelors Doctorate HS-grad Masters "
            "Preschool Prof-school Some-college"
        ),
        "education-num": (1, 16),
        "marital-status": _words(
            "Divorced Married-AF-spouse Married-civ-spouse Married-spouse-absent Never-married Separated Widowed"
        ),
        "occupation": _words(
            "Adm-clerical Armed-Forces Craft-repair Exec-managerial Farming-fishing Handlers-cleaners "
            "Machine-op-inspct Other-service Priv-house-serv Prof-specialty Protective-serv Sales Tech-support "
            "Transport-moving"
        ),
        "relationship": _words("Husband Not-in-family Other-relative Own-child Unmarried Wife"),
        "race": _words("Amer-Indian-Eskimo Asian-Pac-Islander Black Other White"),
        "sex": _words("Female Male"),
        "capital-gain": (0, 99_999),
        "capital-loss": (0, 4_356),
        "hours-per-week": (1, 99),
        "native-country": _words(_COUNTRIES),
    },
    label="income",
    classes={"<=50K": "<=50K", ">50K": ">50K"},
    missing="?",
)

UNKNOWN = "?"
ADULT_ALL = replace(
    ADULT,
    columns={
        **ADULT.columns,
        **{name: (*ADULT.columns[name], UNKNOWN) for name in ("occupation", "native-country")},
        "workclass": (*ADULT.columns["workclass"], "Never-worked", UNKNOWN),
    },
    missing=None,
)

GERMAN = Schema(
    columns={
        "status": _words("A11 A12 A13 A14"),
        "duration": (4, 72),
        "credit_history": _words("A30 A31 A32 A33 A34"),
        "purpose": _words("A40 A41 A42 A43 A44 A45 A46 A48 A49 A410"),
        "amount": (250, 18_424),
        "savings": _words("A61 A62 A63 A64 A65"),
        "employment": _words("A71 A72 A73 A74 A75"),
        "installment_rate": (1, 4),
        "personal_status_sex": _words("A91 A92 A93 A94"),
        "other_debtors": _words("A101 A102 A103"),
        "residence_since": (1, 4),
        "property": _words("A121 A122 A123 A124"),
        "age": (19, 75),
        "other_installment_plans": _words("A141 A142 A143"),
        "housing": _words("A151 A152 A153"),
        "existing_credits": (1, 4),
        "job": _words("A171 A172 A173 A174"),
        "people_liable": (1, 2),
        "telephone": _words("A191 A192"),
        "foreign_worker": _words("A201 A202"),
    },
    label="credit_risk",
    classes={"1": "good", "2": "bad"},
)

_ANSWER = ("no", "unknown", "yes")

BANK = Schema(
    columns={
        "age": (17, 98),
        "job": _words(
            "admin. blue-collar entrepreneur housemaid management retired self-employed services student technician "
            "unemployed unknown"
        ),
        "marital": _words("divorced married single unknown"),
        "education": _words(
            "basic.4y basic.6y basic.9y high.school illiterate professional.course university.degree unknown"
        ),
        "default": _ANSWER,
        "housing": _ANSWER,
        "loan": _ANSWER,
        "contact": _words("cellular telephone"),
        "month": _words("mar apr may jun jul aug sep oct nov dec"),
        "day_of_week": _words("mon tue wed thu fri"),
        "campaign": (1, 56),
        "pdays": (0, 999),
        "previous": (0, 7),
        "poutcome": _words("failure nonexistent success"),
        "emp.var.rate": (-3.4, 1.4),
        "cons.price.idx": (92.201, 94.767),
        "cons.conf.idx": (-50.8, -26.9),
        "euribor3m": (0.634, 5.045),
        "nr.employed": (4_963.6, 5_228.1),
    },
    label="y",
    classes={"no": "no", "yes": "yes"},
)

_MONTHS = (1, 2, 3, 4, 5, 6)
_CREDIT_LABEL = "default.payment.next.month"

CREDIT = Schema(
    columns={
        "LIMIT_BAL": (10_000, 1_000_000),
        "SEX": _words("1 2"),
        "EDUCATION": _words("0 1 2 3 4 5 6"),
        "MARRIAGE": _words("0 1 2 3"),
        "AGE": (21, 79),
        **{f"PAY_{month}": (-2, 8) for month in (0, 2, 3, 4, 5, 6)},
        **{f"BILL_AMT{month}": (-339_603, 1_664_089) for month in _MONTHS},
        **{f"PAY_AMT{month}": (0, 1_684_259) for month in _MONTHS},
    },
    label=_CREDIT_LABEL,
    classes={"0": "no default", "1": "default"},
)


def adult_csv(paths: Sequence[Path], schema: Schema = ADULT) -> Contents:
    """adult.csv.gz: the standard columns, income and split."""
    return encode(read_csv(paths[0]), schema, paths[0])


def adult_uci(paths: Sequence[Path], schema: Schema = ADULT) -> Contents:
    """adult.data and adult.test of the UCI repository."""
    columns = (*ADULT.columns, ADULT.label)
    table: dict[str, list[str]] = {name: [] for name in (*columns, "split")}
    for path, part in zip(paths, ("train", "test"), strict=True):
        content = _raw_files.text(_raw_files.plain(path, LIMIT), path)
        lines = [row for row in _raw_files.rows(content, path) if not row[0].startswith("|")]
        found = columns_of(lines, columns, path)
        found[ADULT.label] = [label.removesuffix(".") for label in found[ADULT.label]]
        for name in columns:
            table[name] += found[name]
        table["split"] += [part] * len(lines)
    return encode(table, schema, paths[0])


def german_csv(paths: Sequence[Path]) -> Contents:
    """german_credit.csv.gz, with names for the columns."""
    return encode(read_csv(paths[0]), GERMAN, paths[0])


def german_uci(paths: Sequence[Path]) -> Contents:
    """german.data of the UCI repository: codes separated by blanks, no header."""
    path = paths[0]
    rows = [line.split() for line in _raw_files.text(_raw_files.plain(path, LIMIT), path).splitlines() if line.strip()]
    return encode(columns_of(rows, (*GERMAN.columns, GERMAN.label), path), GERMAN, path)


def bank_csv(paths: Sequence[Path]) -> Contents:
    """bank_marketing.csv.gz."""
    return encode(read_csv(paths[0]), BANK, paths[0])


def bank_uci(paths: Sequence[Path]) -> Contents:
    """bank-additional.zip of the UCI repository, or bank+marketing.zip, which has it inside."""
    path = paths[0]
    inner = () if path.name.startswith("bank-additional") else ("bank-additional.zip",)
    content = _raw_files.text(
        _raw_files.zip_member(path, (*inner, "bank-additional/bank-additional-full.csv"), LIMIT), path
    )
    rows = _raw_files.rows(content, path, separator=";")
    return encode(columns_of(rows[1:], rows[0] if rows else (), path), BANK, path)


def credit_csv(paths: Sequence[Path]) -> Contents:
    """credit_default.csv.gz."""
    return encode(read_csv(paths[0]), CREDIT, paths[0])


def credit_openml(paths: Sequence[Path]) -> Contents:
    """OpenML's data set 42477 as .parquet: columns x1 to x23 in the order of the source, and y."""
    path = paths[0]
    given = [*(f"x{number}" for number in range(1, len(CREDIT.columns) + 1)), "y"]
    table = _raw_files.parquet(path, given, 10**6)
    texts = {}
    for name, own in zip(given, (*CREDIT.columns, CREDIT.label), strict=True):
        try:
            texts[own] = [f"{float(value):.15g}" for value in table[name]]
        except (TypeError, ValueError):
            raise InputError(f"{path}: column {name} holds other things than numbers; get the file again.") from None
    return encode(texts, CREDIT, path)
