"""Values of policies from a made-up table in Open Bandit's layout."""

import numpy as np
import pyarrow as pa
import pytest
from bandits import ITEMS, bandit_tables

from performative.audit.causes import PolicyValue, policy_values


def by_kind(found):
    return {(one.policy, one.logs, one.method): one for one in found}


def test_the_columns_of_open_bandit_run_as_they_are():
    tables, truth = bandit_tables(0)
    found = by_kind(policy_values(tables))
    assert len(found) == 8 and all(isinstance(one, PolicyValue) for one in found.values())
    for (policy, _, _), one in found.items():
        assert abs(one.value - truth[policy]) < 4 * one.standard_error, one
        assert one.lower < one.value < one.upper and 50 < one.effective <= one.rows
    assert found["bts", "bts", "mean"].value == tables["bts"]["click"].mean()
    arrow = by_kind(policy_values({name: pa.Table.from_pandas(table) for name, table in tables.items()}))
    assert {key: one.value for key, one in arrow.items()} == {key: one.value for key, one in found.items()}


def test_ips_is_the_weighted_mean():
    tables, _ = bandit_tables(1)
    random, bts = tables["random"], tables["bts"]
    pi = bts.groupby(["position", "item_id"]).size() / bts.groupby("position").size()
    w = pi.reindex([*zip(random["position"], random["item_id"], strict=True)], fill_value=0.0).to_numpy() * ITEMS
    found = by_kind(policy_values(tables))
    y = random["click"].to_numpy()
    assert found["bts", "random", "ips"].value == pytest.approx((w * y).mean())
    assert found["bts", "random", "snipw"].value == pytest.approx((w * y).sum() / w.sum())
    assert found["bts", "random", "ips"].effective == pytest.approx(w.sum() ** 2 / (w**2).sum())


def test_what_was_never_shown_cannot_be_valued():
    tables, _ = bandit_tables(2)
    tables["bts"] = tables["bts"][tables["bts"]["item_id"] != 3]
    found = by_kind(policy_values(tables))
    assert "never shown by bts" in found["random", "bts", "dr"].why and np.isnan(found["random", "bts", "dr"].value)
    assert found["random", "bts", "ips"].to_dict()["value"] is None
    assert not found["bts", "random", "ips"].why


@pytest.mark.slow
def test_intervals_of_values_hold_the_truth():
    runs, held = 400, {}
    for seed in range(runs):
        tables, truth = bandit_tables(seed)
        for one in policy_values(tables):
            held.setdefault((one.policy, one.logs, one.method), []).append(one.lower <= truth[one.policy] <= one.upper)
    for kind, covered in held.items():
        assert abs(np.mean(covered) - 0.95) < 3.3 * np.sqrt(0.95 * 0.05 / runs), (kind, np.mean(covered))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"outcome": "clck"}, "'clck' is not a column of 'random'"),
        ({"level": 2.0}, "level must lie between 0 and 1"),
        ({"propensity": "position"}, r"'position' in \(0, 1\]"),
    ],
)
def test_wrong_columns_are_named(change, told):
    with pytest.raises(ValueError, match=told):
        policy_values(bandit_tables(0, rows=(60, 60))[0], **change)


def test_few_rows_and_no_frames_are_refused():
    with pytest.raises(ValueError, match="has 20 rows; 50 are needed"):
        policy_values(bandit_tables(0, rows=(20, 60))[0])
    with pytest.raises(ValueError, match="at least one policy"):
        policy_values({})
    with pytest.raises(ValueError, match="must be a data frame"):
        policy_values({"random": [1, 2]})
