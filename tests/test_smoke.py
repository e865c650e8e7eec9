import numpy as np
import pytest

import performative as pf


@pytest.mark.parametrize("executor", ["dense", "gather", "loop"])
@pytest.mark.parametrize("participation", [pf.Full(), pf.SchemeOne(3), pf.SchemeTwo(2), pf.FirstK(2, pf.participation.Exponential(1.0)), pf.LocalWork(pf.SchemeOne(2), [1, 2, 3, 2, 1])])
def test_run(executor, participation):
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.arange(5.0), 0.5, 1.0))
    algorithm = pf.p_fedavg(rate=0.1, participation=participation)
    history = pf.run(problem, algorithm, rounds=3, theta=0.0, executor=executor)
    assert history.theta.shape == (1, 4)
