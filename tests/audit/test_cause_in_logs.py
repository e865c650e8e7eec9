"""What decisions do to outcomes, asked of logs as the audit reads them."""

import numpy as np
import pandas as pd
import pytest

from performative import audit
from performative.audit.causes.logs import cause_in_logs
from performative.audit.page import page
from performative.audit.schema import LogError

EFFECT = 0.4


def write_logs(folder, outcome=True):
    """Acceptance from a score of 0 on adds EFFECT to an outcome that a hidden cause moves as well."""
    rng = np.random.default_rng(3)
    frames, models = [], []
    for version in range(6):
        theta = 1.0 + 0.2 * rng.normal()
        models.append({"deployment": f"v{version}", "theta_income": theta})
        income = rng.normal(size=1500)
        score = theta * income
        accepted = (score >= 0).astype(int)
        frame = pd.DataFrame({"deployment": f"v{version}", "income": income, "score": score, "accepted": accepted})
        frames.append(frame.assign(earned=0.8 * income + EFFECT * accepted + rng.normal(size=1500)))
    data = pd.concat(frames)
    pd.DataFrame(models).to_csv(folder / "deployments.csv", index=False)
    (data if outcome else data.drop(columns="earned")).to_csv(folder / "data.csv", index=False)
    label = 'label = "earned"\n' if outcome else ""
    (folder / "audit.toml").write_text(f"[columns]\n{label}[decision]\nthreshold = 0.0\n")


@pytest.mark.slow
def test_a_threshold_in_logs_tells_what_acceptance_does(tmp_path):
    write_logs(tmp_path)
    found = cause_in_logs(tmp_path)
    assert found.design == "threshold" and found.interval[0] < EFFECT < found.interval[1]
    assert found.interval[1] - found.interval[0] < 1.0


def test_the_report_has_it_where_it_is_asked_for(tmp_path):
    write_logs(tmp_path)
    report = audit.audit_logs(tmp_path, cause=True)
    assert report.cause.design == "threshold" and report.to_dict()["cause"]["identified"]
    assert "What does the decision do?" in page(report).decode()
    assert audit.audit_logs(tmp_path).cause is None


def test_without_outcomes_it_is_refused(tmp_path):
    write_logs(tmp_path, outcome=False)
    with pytest.raises(LogError, match="a cause needs outcomes: name the label"):
        cause_in_logs(tmp_path)
