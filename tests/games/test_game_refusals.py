"""Bad input: one clear message each, and no analysis that is not made for games."""

import numpy as np
import pytest

import performative as pf

GAME = pf.cases.linear_game([1.0, 2.0], -np.eye(2), 1.0)
PROBLEM = GAME.problem
MARKET, GAUSSIAN = pf.populations.Market, pf.populations.Gaussian([0.0, 1.0], 0.5, 1.0)
LOGIT, TURNS = pf.populations.shares.Logit, pf.participation.Turns
WRONG = {
    "coupling must be [N, players]": lambda: MARKET([1.0, 2.0], [1.0, 2.0], 1.0),
    "all per-client arrays need one row per client": lambda: MARKET([1.0, 2.0], np.zeros((3, 2)), 1.0),
    "got shape (2, 2, 3)": lambda: MARKET(np.zeros((2, 2)), np.zeros((2, 2, 3)), 1.0),
    "must be finite": lambda: MARKET([1.0, 2.0], [[np.nan, 0.0], [0.0, 0.0]], 1.0),
    "scale is a standard deviation": lambda: MARKET([1.0, 2.0], np.zeros((2, 2)), -1.0),
    "m a row and a column for each": lambda: pf.cases.linear_game([1.0, 2.0], np.zeros((2, 3))),
    "is for 2 players, but the game has 1": lambda: pf.Game(PROBLEM, [0, 0]),
    "a player for each of the 2 clients; got 3": lambda: pf.Game(PROBLEM, [0, 1, 1]),
    "every player needs a client; players [1]": lambda: pf.Game(PROBLEM, [0, 2]),
    "players must be the number 0, 1, ...": lambda: pf.Game(PROBLEM, [0.5, 1.0]),
    "one for each player; got 3": lambda: pf.Game(3),
    "leave players out": lambda: pf.Game([PROBLEM, PROBLEM], players=[0, 1]),
    "players need the same loss; that of problems[1]": lambda: pf.Game(
        [PROBLEM, pf.Problem(pf.losses.negative_revenue, PROBLEM.population)]
    ),
    "must be of the same kind: that of player 1 has a different structure": lambda: pf.Game(
        [pf.Problem(PROBLEM.loss, PROBLEM.population), pf.Problem(PROBLEM.loss, GAUSSIAN)]
    ),
    "coupling has shapes": lambda: pf.Game(
        [pf.Problem(PROBLEM.loss, MARKET([1.0], np.zeros((1, k)), 1.0)) for k in (2, 3)]
    ),
    'play must be "simultaneous"': lambda: pf.Game(PROBLEM, play="chess"),
    "movers=3 of 2 players": lambda: pf.Game(PROBLEM, play="random", movers=3),
    "have total weight 0": lambda: pf.Game(pf.Problem(PROBLEM.loss, PROBLEM.population, [1.0, 0.0])),
    "size and merit need one entry": lambda: LOGIT([1.0, 2.0], [1.0]),
    "size must be >= 0": lambda: LOGIT([-1.0, 2.0], [1.0, 2.0]),
    "sharpness must not be negative": lambda: LOGIT([1.0, 2.0], [1.0, 2.0], -1.0),
    "players has 3 entries for 2": lambda: pf.run(
        PROBLEM, pf.p_fedavg(0.1, participation=pf.participation.Turns(3)), 2
    ),
    "k=3 of 2 players": lambda: TURNS(2, k=3),
    "shares of the two kinds": lambda: pf.cases.competing_banks(size=[1.0]),
    "sharing=Ditto in a game": lambda: pf.run(GAME, pf.p_fedavg(0.1, sharing=pf.sharing.Ditto(1.0)), 2),
    "compensates for absent": lambda: pf.run(GAME, pf.p_fedavg(0.1, participation=pf.SchemeTwo(1)), 2),
    "the game sets who takes part": lambda: pf.run(
        pf.Game(PROBLEM, play="random"), pf.p_fedavg(0.1, participation=pf.SchemeTwo(1)), 2
    ),
    "each of 2 sellers; the number of deployed models is 1": lambda: pf.run(
        PROBLEM, pf.p_fedavg(0.1, sharing=pf.sharing.Groups([0, 0])), 2
    ),
    "game must be a Game; got": lambda: pf.nash_point(PROBLEM),
    "theta must have shape": lambda: pf.run(GAME, pf.p_fedavg(0.1), 2, theta=[0.0, 0.0]),
    "start must have shape": lambda: pf.stable_point(GAME, start=[0.0, 0.0, 0.0]),
    "use pf.Game(problem.at(time), ...)": lambda: pf.stable_point(GAME, time=1.0),
    "so no point is fixed": lambda: pf.stable_point(
        pf.Game(pf.Problem(PROBLEM.loss, pf.populations.Drifting(PROBLEM.population, pf.paths.Linear(0.1))))
    ),
}


@pytest.mark.parametrize("words", WRONG)
def test_is_refused(words):
    with pytest.raises(ValueError) as refused:
        WRONG[words]()
    assert words in str(refused.value)


ANALYSES = {
    "certify": lambda: pf.certify(GAME),
    "optimal_point": lambda: pf.optimal_point(GAME),
    "equilibria": lambda: pf.equilibria(GAME),
    "repeated_risk_minimization": lambda: pf.repeated_risk_minimization(GAME, deployments=2),
    "plan": lambda: pf.plan(GAME, pf.Cost(), accuracy=0.1),
    "scoreboard": lambda: pf.scoreboard(GAME, {"a": pf.p_fedavg(0.1)}, rounds=2),
    "average_drift": lambda: pf.average_drift(GAME, pf.p_fedavg(0.1), 0.0),
    "guarantee": lambda: pf.privacy.guarantee(GAME, pf.p_fedavg(0.1)),
}


@pytest.mark.parametrize("name", ANALYSES)
def test_an_analysis_of_one_learner_refuses_a_game(name):
    """By the name of the argument: none of them knows what several learners do to each other."""
    with pytest.raises(ValueError, match=r"problem must be a (pf\.)?Problem; got (a )?Game"):
        ANALYSES[name]()


def test_a_private_run_of_a_game_is_refused():
    private = pf.pcsgd(0.1, clip=1.0, noise_multiplier=1.0)
    with pytest.raises(ValueError, match="Groups: clients deploy their own models"):
        pf.run(GAME, private, 2, privacy=pf.Privacy(1e-3, epsilon=1.0))
