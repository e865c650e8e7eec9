"""Every environment is what it says, and its numbers stay."""

import dataclasses

import pytest
from digest import digest, known

import performative as pf

QUICK = ("gaussian-contracting-v1",)
IDS = pf.suite.ids()


def made(id):
    try:
        return pf.suite.make(id)
    except pf.data.NotHereError as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize("id", [id if id in QUICK else pytest.param(id, marks=pytest.mark.slow) for id in IDS])
def test_environments_keep_the_contract(id):
    found = pf.suite.check_environment(made(id))
    assert found.ok, str(found)


@pytest.mark.parametrize("id", [id if id in QUICK else pytest.param(id, marks=pytest.mark.slow) for id in IDS])
def test_numbers_of_a_version_never_change(id):
    assert digest(made(id)) == known()[id], "numbers have changed: undo that, or raise the version"


def test_every_environment_has_a_digest():
    assert set(known()) == set(IDS)


def test_there_are_many():
    assert len(IDS) >= 30 and len(pf.suite.families()) >= 10


def test_a_broken_environment_is_told():
    env = pf.suite.make("gaussian-contracting-v1")
    env._reference.__dict__["stable"] = dataclasses.replace(env.stable, residual=0.5)
    env.card = " "
    found = pf.suite.check_environment(env)
    assert not found.ok and "the stable point has a residual of 0.5" in str(found) and "card is empty" in str(found)
