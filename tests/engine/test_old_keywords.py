"""Keywords of old do what they did, and the warning names their new place."""

import numpy as np
import pytest

import performative as pf
from performative._base.messages import code_of

PROBLEM = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.arange(4.0), 0.5, 1.0))
SOME = pf.p_fedavg(rate=0.1, local_steps=2, participation=pf.SchemeOne(2))


def test_old_and_new_give_the_same_run(tmp_path):
    new = pf.run(
        PROBLEM, SOME, 8, theta=1.0, clients_at_once=1, callbacks=[pf.callbacks.Progress(False)],
        record=pf.Record(every=2, theta="last", risks=3, consensus=False, stable=2.0, optimal=1.0, limit=1e6),
        checkpoint=pf.Checkpoint(tmp_path / "new", every=4),
    )  # fmt: skip
    with pytest.warns(UserWarning) as said:
        old = pf.run(
            PROBLEM, SOME, 8, theta=1.0, every=2, record_theta="last", risk=3, consensus=False, stable=2.0, optimal=1.0,
            limit=1e6, at_once=1, progress=False, checkpoint=tmp_path / "old", checkpoint_every=4, resume=True,
        )  # fmt: skip
    assert len(said) == 1 and code_of(said[0].message) == "old-keyword"
    text = str(said[0].message)
    for form in (
        "record=pf.Record(every=..., theta=..., risks=...",
        "clients_at_once=",
        "pf.Checkpoint(folder, every=...",
    ):
        assert form in text
    assert "callbacks=[pf.callbacks.Progress(...)]" in text and said[0].filename == __file__
    a, b = new.to_xarray(), old.to_xarray()
    assert set(a) == set(b) and all(np.array_equal(a[name], b[name], equal_nan=True) for name in a)


@pytest.mark.slow
def test_a_sweep_takes_them_too():
    with pytest.warns(
        UserWarning, match=r"pf.sweep: every= and risk= have moved; write record=pf.Record\(every=..., risks"
    ):
        old = pf.sweep(PROBLEM, SOME, {"rate": [0.1, 0.2]}, 6, 1.0, every=3, risk=2)
    new = pf.sweep(PROBLEM, SOME, {"rate": [0.1, 0.2]}, 6, 1.0, record=pf.Record(every=3, risks=2))
    np.testing.assert_array_equal(old.histories[1].theta, new.histories[1].theta)
    assert set(old.histories[0].risks) == set(new.histories[0].risks)


def test_what_never_was_a_keyword_is_none():
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'recrod_theta'\. Did you mean 'record_theta'"):
        pf.run(PROBLEM, SOME, 2, theta=1.0, recrod_theta="all")
    with pytest.raises(TypeError, match=r"sweep\(\) got an unexpected keyword argument 'resume'"):
        pf.sweep(PROBLEM, SOME, {"rate": [0.1]}, 2, 1.0, resume=True)
    with pytest.raises(ValueError, match="resume=True needs checkpoint="):
        pf.run(PROBLEM, SOME, 2, theta=1.0, resume=True)


def test_the_signature_is_short():
    import inspect

    for function, most in ((pf.run, 14), (pf.sweep, 14)):
        named = [p for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]
        assert len(named) <= most
