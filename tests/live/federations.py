"""A small federation whose points are known, and clients that misbehave, for the tests of this folder."""

import time
from typing import Any

import numpy as np

import performative as pf
from performative.live import (
    AbstractTransport,
    Callback,
    Federation,
    Function,
    InProcess,
    Live,
    Member,
    Observed,
    Reply,
)

MEAN, EPS = np.linspace(-1.0, 2.0, 5), np.linspace(0.1, 0.6, 5)


def gaussian(clients: int = 5, weights: Any = None) -> pf.Problem:
    """N(m_i + eps_i theta, 1) in three dimensions."""
    mean = np.resize(MEAN, clients)[:, None] * np.ones(3)
    population = pf.populations.Gaussian(mean=mean, sensitivity=np.resize(EPS, clients), scale=1.0)
    return pf.Problem(loss=pf.losses.squared, population=population, weights=weights)


def federation(problem: pf.Problem | None = None, algorithm: Any = None, **options: Any) -> Federation:
    problem = gaussian() if problem is None else problem
    if algorithm is None:
        algorithm = pf.p_fedavg(rate=0.1, local_steps=2, batch=pf.Fixed(4), deploy="round")
    settings = {"rounds": 6, "seed": 3, "dtype": "float64", "timeout": 20.0} | options
    return Federation(problem, algorithm, **settings)


def real_federation(participation: Any = None, **options: Any) -> tuple[Federation, dict[int, list[Any]]]:
    """Four clients with places where their models go, and the models that came there, by client; two clients are drawn
    each round."""
    participation = pf.SchemeTwo(2) if participation is None else participation
    met: dict[int, list[Any]] = {i: [] for i in range(4)}

    def source(client):
        def table(version):
            return {"a": [0.5, 1.0], "y": [0, 1], "model_version": [version, version]}

        return Live(Callback(met[client].append), Function(table, features=["a"], label="y"))

    shape = Observed(x=np.zeros((4, 1, 1)), y=np.zeros((4, 1), int), classes=2)
    problem = pf.Problem(pf.losses.logistic(0.1), shape)
    algorithm = pf.p_fedavg(0.5, batch=pf.Whole(), deploy="round", participation=participation)
    settings = {"rounds": 4, "timeout": 8, "dtype": "float64"} | options
    made = Federation(problem, algorithm, source=source, **settings)
    return made, met


def members(made: Federation, folder: Any) -> dict[int, Member]:
    return {i: Member(made, i, folder / "clients" / str(i)) for i in range(made.clients)}


def transport(made: Federation, folder: Any, wrap: Any = None) -> InProcess:
    """Clients in threads; `wrap(client, answer)` gives the answer that really comes."""
    honest = {i: member.answer for i, member in members(made, folder).items()}
    return InProcess(honest if wrap is None else {i: wrap(i, answer) for i, answer in honest.items()})


def simulated(made: Federation, **options: Any) -> Any:
    """`pf.run` of the same."""
    same = {"rounds": made.rounds, "seed": made.seed, "dtype": made.dtype, "theta": made.theta}
    return pf.run(made.problem, made.algorithm, **same, record=pf.Record(risks=False), **options)


class Killed(BaseException):
    """What a kill -9 is to the code that it hits: nothing after it happens."""


class OneThread(AbstractTransport):
    """Clients that answer at once, in the server's own thread. One that dies is made anew from its disk."""

    def __init__(self, made, folder):
        self.made, self.folder = made, folder
        self.members, self.back, self.deaths = members(made, folder), [], 0

    def online(self):
        return set(self.members)

    def send(self, requests, seconds):
        for client, request in requests.items():
            try:
                self.back.append(Reply(client, self.members[client].answer(request)))
            except Killed:
                self.deaths += 1
                self.members[client] = Member(self.made, client, self.folder / "clients" / str(client))

    def receive(self, seconds):
        found, self.back = self.back, []
        if not found:
            time.sleep(min(seconds, 0.01))
        return found
