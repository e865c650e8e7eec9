"""Games: prices that depend on each other, and banks that compete for applicants."""

import numpy as np

from performative import losses
from performative._base.arguments import checked
from performative._base.checks import check_counts, check_finite, check_number, check_room, check_rule
from performative.facts import cites
from performative.game import Game
from performative.populations import Classes, Market, Mixture
from performative.populations.shares import Logit
from performative.problem import Problem
from performative.types import ArrayLike, Unchecked, as_numbers

# For each kind of applicant, the mean features of those who repay and of those who do not.
KINDS = np.array([[[-1.0, 0.0], [1.0, 0.0]], [[0.0, -1.0], [0.0, 1.0]]])


@cites("narang2023multiplayer", "piliouras2023multiagent")
@checked
def linear_game(
    b: Unchecked[ArrayLike], m: Unchecked[ArrayLike], penalty: float = 1.0, scale: float = 1.0,
    play: str = "simultaneous", movers: int = 1,
) -> Game:  # fmt: skip
    """Sellers whose demand depends on all prices p: a game whose three kinds of points are known exactly.

    z_i ~ N(b_i + sum_j m_ij p_j, scale^2),      loss -p_i z_i + penalty p_i^2 / 2
    stable (penalty I - m)^-1 b,   Nash (penalty I - m - diag m)^-1 b,   social (penalty I - m - m^T)^-1 b
    """
    level, coupling = as_numbers(b), as_numbers(m)
    check_finite("linear_game", b=level, m=coupling)
    check_number("linear_game", penalty=penalty, scale=scale)
    if np.ndim(level) != 1 or np.shape(coupling) != (len(level), len(level)) or not len(level):
        raise ValueError(
            "linear_game: b must contain one number per player and m a row and a column for each; got shapes "
            f"{np.shape(level)} and {np.shape(coupling)}."
        )
    return Game(Problem(losses.revenue(penalty), Market(level, coupling, scale)), play=play, movers=movers)


@cites("ginart2021competing", "dean2022emergent")
@checked
def competing_banks(
    banks: int = 2, sharpness: float = 1.0, reaction: float = 0.1, size: Unchecked[ArrayLike] = (0.5, 0.5),
    penalty: float = 0.02, play: str = "simultaneous", movers: int = 1,
) -> Game:  # fmt: skip
    """Banks that score applicants who go where they are scored best, and who manipulate their features.

        x | y ~ N(mean_{k,y} - reaction theta, 0.8^2) for people of kind k;     logistic loss, y = 1: do not repay
        s_{k,i} ~ exp(sharpness u_k(theta_i)),      u_k(theta) = -theta . (mean_{k,0}, 1)

    Two kinds of people in shares `size`: for one the first feature predicts who repays, for the other the second; half
    of each repay. u_k is the score of people of kind k who do repay. Banks are identical. With small `sharpness` they
    stay identical; above a threshold the symmetric point repels: each bank comes to serve one kind, and predicts it
    better. Synthetic. Ginart et al. 2021 and Dean et al. 2022 find such specialization.
    """
    check_counts(banks=banks)
    check_room("competing_banks", 32 * banks, banks=banks)
    check_number("competing_banks", sharpness=sharpness, reaction=reaction)
    check_rule("competing_banks", "must not be negative", sharpness=sharpness, reaction=reaction)
    people = as_numbers(size)
    check_finite("competing_banks", size=people)
    if np.shape(people) != (len(KINDS),):
        raise ValueError(f"competing_banks: size must contain the shares of the two kinds; got {size!r}.")
    groups = tuple(
        Classes(np.broadcast_to(mean, (banks, *mean.shape)), reaction, 0.8, intercept=True) for mean in KINDS
    )
    merit = -np.concatenate([KINDS[:, 0], np.ones((len(KINDS), 1))], axis=1)
    share = Logit(people, np.broadcast_to(merit, (banks, *merit.shape)), sharpness)
    return Game(Problem(losses.logistic(penalty), Mixture(groups, share)), play=play, movers=movers)
