"""People who change what a linear score sees of them."""

from typing import Any

import numpy as np

from performative import data, losses, partition
from performative.cases import credit, credit_default, strategic_adult, strategic_classes, strategic_credit
from performative.data import DATA_SETS
from performative.populations import Strategic
from performative.problem import SCALED_BY_ROWS, Problem
from performative.suite.budget import Budget
from performative.suite.registry import register
from performative.suite.setting import Setting


def bundled(name: str, positive: int, strength: np.ndarray, columns: int, penalty: float, **options: Any) -> Setting:
    """A table bundled with scikit-learn, split across clients; people change its first `columns` columns."""
    table = getattr(data, name)()
    x = (table.x - table.x.mean(axis=0)) / table.x.std(axis=0)
    x = np.column_stack([x, np.ones(len(x))])
    y = (table.y == positive).astype(np.int64)
    clients, features = len(strength), x.shape[1] - 1
    tables, labels, count = partition.tables(x, y, partition.iid(len(y), clients, 0))
    population = Strategic(tables, labels, strength, features=tuple(range(columns)), count=count)
    loss = losses.logistic(penalty, intercept=features)
    problem = Problem(loss, population, weights=count / len(y), from_data=(SCALED_BY_ROWS,))
    known = {"sensitivity": float(np.mean(strength)), "strong_convexity": penalty}
    return Setting(
        problem, Budget(40, 40_000, 40), rows=40, constants=known, license=DATA_SETS[name].license, starts=1,
        **options,
    )  # fmt: skip


@register("strategic-classes-v1", family="strategic")
def classes() -> Setting:
    """Two normal classes with two features at ten clients; people of class 1 change their features to please the
    classifier, x - gamma theta with gamma in [2.8, 3.2], those of class 0 hardly do. Retraining is far beyond its
    threshold, and the optimal point hardly uses the features at all (Zheng et al. 2024, Table 2)."""
    known = {"sensitivity": 3.2, "strong_convexity": 0.01, "noise": 0.5}
    return Setting(strategic_classes(), Budget(60, 60_000, 60), rows=50, constants=known, starts=2, advice="pf.pofl")


@register("credit-strategic-v1", family="strategic")
def made_up_credit() -> Setting:
    """Ten banks that score loan applicants who change utilization, debt ratio, open lines and new enquiries, more at
    each bank than at the one before: x - strength_i theta, strength from 0 to 2.5. No single model suits all banks, so
    the stable and the optimal point differ. The table is synthetic and quick to solve."""
    known = {"sensitivity": 1.25, "strong_convexity": 0.0}
    return Setting(credit(), Budget(40, 40_000, 40), rows=50, constants=known, starts=1)


@register("credit-evasion-v1", family="strategic")
def evasion() -> Setting:
    """Borrowers with a history of default who manipulate their files by a fixed distance against the score's direction,
    x - 0.5 y theta / |theta|: how far they move does not depend on the size of the weights. Synthetic table of five
    lenders; a default counts twice. The stable and the optimal point coincide (Li, Yemini and Wai 2024)."""
    rng = np.random.default_rng(2)
    start = 0.1 * rng.standard_normal(8)
    known = {"strong_convexity": 0.1}
    problem = credit_default(beta=0.5, penalty=0.1, clients=5)
    return Setting(problem, Budget(40, 40_000, 40), rows=50, start=start, constants=known, starts=0)


@register("cancer-strategic-v1", family="strategic")
def cancer() -> Setting:
    """The Wisconsin breast cancer table as a proxy for any score that people want to be low: five clinics, ten of
    thirty measurements can be changed, x - strength_i theta with strength from 0 to 2, label 1 malignant, logistic loss
    with L2 of 0.05. Real features, simulated reaction."""
    return bundled("breast_cancer", 0, np.linspace(0.0, 2.0, 5), columns=10, penalty=0.05)


@register("wine-strategic-v1", family="strategic")
def wine() -> Setting:
    """The wine table: is a wine from the second grower? Four shops, all thirteen measurements can be changed, strength
    from 0 to 3, L2 of 0.1: few rows, so a learner's rows repeat. Real features, simulated reaction."""
    return bundled("wine", 1, np.linspace(0.0, 3.0, 4), columns=13, penalty=0.1)


@register("credit-real-v1", family="strategic")
def real_credit() -> Setting:
    """Give Me Some Credit, balanced, columns clipped at their 1% and 99% quantiles: 10 lenders, borrowers change
    utilization, open lines and real estate loans by eps_i theta, eps_i ~ U[0, 4], L2 of 0.05. Needs the data: see
    `pf.data.credit`."""
    problem = strategic_credit(effect="strong", rows=8000, download=False).problem
    known = {"sensitivity": 2.0, "strong_convexity": 0.0}
    license = DATA_SETS["credit"].license
    return Setting(problem, Budget(40, 80_000, 40), rows=100, constants=known, license=license, starts=0)


@register("adult-real-v1", family="strategic")
def real_adult() -> Setting:
    """The 1994 census, with balanced classes: 10 clients, people who earn more change all 14 columns by theta, the
    others none, L2 of 0.2 (the strong rule of `pf.cases.strategic_adult`). Needs the data: see `pf.data.adult`."""
    problem = strategic_adult(effect="strong", rows=8000, download=False).problem
    known = {"sensitivity": 1.0, "strong_convexity": 0.0}
    license = DATA_SETS["adult"].license
    return Setting(problem, Budget(40, 80_000, 40), rows=100, constants=known, license=license, starts=0)
