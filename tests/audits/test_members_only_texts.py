"""The members-only audit of a classifier of texts: labels come with the generated texts, and only a leak shows."""

import numpy as np
import pytest

from dosimeter import InputError, audit_members_only
from dosimeter.attacks.stacked import Content, WordClassifier, content_scores, hashed

pytestmark = pytest.mark.slow

WORDS = np.array([a + b + c for a in "bdfgk" for b in "aeiou" for c in "lmnrst"])


def labelled(count, seed):
    """Texts whose words lean to one end of the list or to the other, and labels of which a fifth is wrong."""
    rng = np.random.default_rng(seed)
    slope = np.exp(-np.arange(WORDS.size) / 60.0)
    shares = np.stack([slope, slope[::-1]]) / slope.sum()
    shares = 0.35 * shares + 0.65 / WORDS.size
    y = rng.integers(0, 2, count)
    texts = [" ".join(rng.choice(WORDS, 8, p=shares[label])) for label in y]
    return texts, np.where(rng.uniform(size=count) < 0.2, 1 - y, y)


def classifier(X, y, strength=100.0):
    pytest.importorskip("sklearn")
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    return make_pipeline(CountVectorizer(ngram_range=(1, 2)), LogisticRegression(C=strength, max_iter=500)).fit(X, y)


@pytest.fixture(scope="module")
def audit():
    members = labelled(1000, 0)
    models = {
        "memorises": classifier(*members),
        "smooth": classifier(*members, strength=0.01),
        "trained on others": classifier(*labelled(1000, 1)),
    }
    return audit_members_only(models, members, references=3, repeats=3, nonmembers=labelled(500, 2), seed=0)


@pytest.mark.slow
def test_what_is_memorised_shows_and_nothing_else(audit):
    memorises, smooth, others = audit.details["targets"]
    assert memorises["epsilon"] > 0.5 > smooth["epsilon"] and memorises["auc"] > 0.8
    assert others["epsilon"] == 0.0 and not others["stands_out"]


def test_real_nonmembers_bound_the_same_models(audit):
    memorises, _, others = audit.details["real"]["targets"]
    assert memorises["epsilon"] > 0.5 and others["epsilon"] < 0.2
    assert memorises["epsilon"] + 0.5 > audit.details["targets"][0]["epsilon"]


def test_the_warning_about_language_models_is_for_those_only(audit):
    assert not any("n-gram models" in text for text in audit.headline.warnings)
    assert any("may stand out without a leak" in text for text in audit.headline.warnings)


def test_the_content_classifier_sees_labels_that_do_not_fit():
    side = np.random.default_rng(3).integers(0, 2, 200)
    texts = [f"{('left', 'right')[code]} {WORDS[k % 31]}" for k, code in enumerate(side)]
    member = np.arange(200) % 2 == 0
    labels = np.where(member, side, 1 - side)
    found = content_scores(Content("text", texts, labels), member, Content("text", texts[:9], labels[:9]), seed=0)
    blind = content_scores(Content("text", texts, None), member, Content("text", texts[:9], None), seed=0)
    seen, unseen = (np.mean((s.train > 0) == member) for s in (found, blind))
    assert seen > 0.95 and unseen - 0.5 < 0.6 * (seen - 0.5)


def test_small_classes_are_refused():
    members = labelled(400, 4)
    few = members[0], np.where(np.arange(400) < 12, 2, members[1])
    with pytest.raises(InputError, match=r"class 2 has . members, and the generator needs at least 20"):
        audit_members_only(lambda X: np.zeros((len(X), 3)), few)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_classifier_of_words_is_the_one_on_all_columns(classes):
    """A second route: scikit-learn on every hashed column, also on words that the training texts lack."""
    from sklearn.linear_model import LogisticRegression

    texts, _ = labelled(120, 5)
    y = np.arange(120) % classes
    parts = texts, [*labelled(40, 6)[0], "zebra quagga", ""]
    seen, asked = (hashed(Content("text", part, None))[:, : 1 << 14] for part in parts)
    short, whole = WordClassifier().fit(seen, y), LogisticRegression(C=10.0, max_iter=200).fit(seen, y)
    assert short.columns.size < seen.shape[1] / 20
    np.testing.assert_array_equal(short.classes_, whole.classes_)
    np.testing.assert_allclose(short.decision_function(asked), whole.decision_function(asked), rtol=0, atol=1e-6)
    np.testing.assert_allclose(short.predict_proba(asked), whole.predict_proba(asked), rtol=0, atol=1e-6)
