"""Models that are known by their scores."""

import numpy as np
import pandas as pd
import pytest
from people import folder_of, write

from performative.audit.reading import read_logs
from performative.audit.schema import LogError


def scored(weights, seed=1, n=400, bent=0.0, link=lambda s: s):
    rng = np.random.default_rng(seed)
    x = rng.normal(40.0, 10.0, (n, 2))
    score = x @ weights[:2] + weights[2] + bent * (x[:, 0] - 40.0) ** 2
    return pd.DataFrame({"income": x[:, 0], "age": x[:, 1], "score": link(score)})


@pytest.mark.parametrize("link", ["identity", "logit"])
def test_scoring_files_of_linear_models_give_back_the_model(tmp_path, link):
    models = np.array([[0.02, -0.01, 0.3], [0.05, 0.0, -1.0], [-0.03, 0.02, 0.1]])
    inverse = (lambda s: 1 / (1 + np.exp(-s))) if link == "logit" else (lambda s: 3 * s)
    files = {f"scores/v{t}.parquet": scored(w, t, link=inverse) for t, w in enumerate(models)}
    listed = "deployment,scoring\n" + "".join(f"v{t + 1},scores/v{t}.parquet\n" for t in range(3))
    logs = read_logs(folder_of(tmp_path, deployments=listed, **files))
    assert logs.deployments.parameters == ("income", "age", "intercept")
    np.testing.assert_allclose(logs.deployments.theta, models if link == "logit" else 3 * models, atol=1e-12)
    assert [fit.link for fit in logs.deployments.scoring] == [link] * 3
    assert all(fit.r_squared > 1 - 1e-12 and fit.rows == 400 for fit in logs.deployments.scoring)
    assert not any("less than" in note for note in logs.notes)
    assert logs.parameters == {"income": 0, "age": 1}


def test_a_bent_model_is_said_to_be_bent(tmp_path):
    files = {"a.csv": scored([0.02, 0.0, 0.0]), "b.csv": scored([0.02, 0.0, 0.0], bent=0.01)}
    logs = read_logs(folder_of(tmp_path, deployments="deployment,scoring\nv1,a.csv\nv2,b.csv\nv3,a.csv\n", **files))
    frame = files["b.csv"]
    a = np.column_stack([frame.income, frame.age, np.ones(len(frame))])
    b, rest, *_ = np.linalg.lstsq(a, frame.score.to_numpy(), rcond=None)
    explained = 1 - rest[0] / np.sum((frame.score - frame.score.mean()) ** 2)
    assert logs.deployments.scoring[1].r_squared == pytest.approx(explained)
    assert explained < 0.9
    np.testing.assert_allclose(logs.deployments.theta[1], b, rtol=1e-9)
    assert sum("not close to linear" in note for note in logs.notes) == 1
    np.testing.assert_array_equal(logs.deployments.theta[0], logs.deployments.theta[2])


def test_faults_of_scoring_files(tmp_path):
    listed = "deployment,scoring\nv1,a.csv\nv2,b.csv\n"
    good = scored([0.02, 0.0, 0.0])
    folder_of(tmp_path, deployments=listed, **{"a.csv": good, "b.csv": good.rename(columns={"score": "scores"})})
    with pytest.raises(LogError, match=r"b.csv: there is no column 'score'. Did you mean 'scores'"):
        read_logs(tmp_path)
    write(tmp_path, {"b.csv": good.drop(columns="age")})
    with pytest.raises(LogError, match=r"b.csv: column 'age' is in a.csv or here, not in both"):
        read_logs(tmp_path)
    write(tmp_path, {"b.csv": good[:3]})
    with pytest.raises(LogError, match=r"b.csv: 3 complete rows are too few for 3 coefficients"):
        read_logs(tmp_path)
    write(tmp_path, {"b.csv": good.assign(age=2 * good.income)})
    assert any("b.csv: some features are constant or collinear" in note for note in read_logs(tmp_path).notes)
