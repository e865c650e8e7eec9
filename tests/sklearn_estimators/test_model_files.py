"""What the command `stress` reads besides the model: labels, the class that people want, columns that they change."""

import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

import performative as pf
from performative.sklearn.model_files import labels_for, load_classifier, movable, wanted_class

FRAME = pd.DataFrame({"income": [1.0, 2.0, 3.0, 4.0], "region": [0, 1, 0, 1], "risk": ["good", "bad", "good", "bad"]})
X, TEXT, NUMBERS = FRAME[["income", "region"]], FRAME["risk"], (FRAME["risk"] == "bad").astype(int)


def test_the_class_that_people_want_is_not_guessed_from_text():
    model = LogisticRegression().fit(X, TEXT)
    assert wanted_class(model, "bad", None) == "good" and wanted_class(model, None, "bad") == "bad"
    assert labels_for(model, TEXT, "risk", "bad").tolist() == TEXT.tolist()
    with pytest.raises(ValueError, match=r"\['bad', 'good'\]; say which one people try to avoid with --positive"):
        wanted_class(model, None, None)
    with pytest.raises(ValueError, match="--positive worse is not a class of the model"):
        labels_for(model, TEXT, "risk", "worse")
    with pytest.raises(ValueError, match="set desired= to the one that people want"):
        pf.sklearn.stress(model, X, TEXT, strategic=["income"])


def test_numbers_have_an_order():
    model = LogisticRegression().fit(X, NUMBERS)
    assert wanted_class(model, None, None) is None and wanted_class(model, "1", None) == 0
    assert wanted_class(model, "bad", None) is None
    assert labels_for(model, TEXT, "risk", "bad").tolist() == NUMBERS.tolist()


def test_label_and_ignored_columns_stay(tmp_path):
    assert movable(FRAME.assign(y=NUMBERS), {"y", "region"}) == ["income"]
    assert movable(X.to_numpy(), set()) is None
    assert movable(pd.concat([FRAME] * 6, ignore_index=True).assign(female=1, account=range(24)), {"risk"}) == [
        "income"
    ]


@pytest.mark.parametrize("thing", [LogisticRegression(), LinearRegression().fit(X, NUMBERS), {"a": 1}])
def test_what_is_no_fitted_classifier_is_said_to_be_none(thing, tmp_path):
    import joblib

    joblib.dump(thing, tmp_path / "model.joblib")
    with pytest.raises(ValueError, match=f"got {type(thing).__name__}, which is not fitted or not a classifier"):
        load_classifier(tmp_path / "model.joblib", trust=True)
