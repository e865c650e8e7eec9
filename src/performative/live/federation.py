"""The definition of a live federation as one record. The server and every client read the same one."""

import contextlib
import dataclasses
import functools
import hashlib
import json
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from performative._base.checks import check_counts
from performative._base.describe import describe
from performative._engine.clock import Clock
from performative._engine.keys import NUMERICS, RunKeys, run_keys
from performative._engine.layout import choose_compute
from performative._engine.options import check_seed, read_dtype, repeat_keys
from performative._engine.prepare import check_owners
from performative._engine.ready import make_ready
from performative._engine.records import levels_at_start
from performative._engine.round import open_round
from performative._engine.secrets import check_grid
from performative._engine.setup import Setup, init_state
from performative._engine.steps import one_client
from performative.algorithm import Algorithm
from performative.facts import declared, said_bound
from performative.live.member_logs import MemberLogs
from performative.live.secure.settings import UNSEEN, Secure, check_secure, read_secure, threshold_of
from performative.live.sources.tables import TableSource
from performative.privacy.promise import Privacy
from performative.problem import Problem
from performative.record import Record
from performative.types import Broadcast, ClientMemory, Cohort, State, Upload

NOTHING = ClientMemory(None, None, None, None)
# A model with a norm above this times (1 + |start|) has diverged, as in `pf.run`.
LIMIT = 1e8


@dataclasses.dataclass(frozen=True)
class Federation:
    """`pf.run`'s problem and algorithm, over a network.

    Attributes:
        rounds, theta, seed, dtype, privacy: as in `pf.run`
        timeout: seconds that a round waits for its clients
        resend: seconds after which a silent client is asked again; None for a quarter of `timeout`
        quorum: minimum number of answers for the model to be updated
        norm: an update with a norm above norm * (1 + |theta|) is rejected; None uses 1e6 and, if three or more clients
            answer, also rejects an update 1000 times as large as the round's median
        size: an answer with more bytes is rejected; None for twice the size of an honest one
        source: source(client) -> pf.live.Live, on the client's own machine: where its model is published and its rows
            come from. None if the problem's population generates the data
        before_deploy: before_deploy(theta, report) -> bool or str, on the server: False, or a reason, keeps a model
            from being deployed. Not if clients have models of their own, which the server does not see
        secure: True, or pf.live.Secure(...): the server sees sums of updates only; see there. Single updates can then
            not be screened: `norm` holds for their mean, and one client that lies can spoil a round
        audit: pf.live.MemberLogs(...): where the members' logs lie, for `performative federation audit`
        record: pf.Record: metrics and quantities of clients as in `pf.run`. Every round is recorded, with its model
            unless theta="last"; no risks are measured: the server has no data
        keep_models: how many of the last deployed models stay on the server's disk, for rollbacks; None for what fits
            into 1 GiB, from 10 to 1000
    """

    problem: Problem
    algorithm: Algorithm
    rounds: int
    theta: Any = None
    seed: int = 0
    dtype: str | None = None
    privacy: Privacy | None = None
    timeout: int | float = 60
    resend: int | float | None = None
    quorum: int = 1
    norm: int | float | None = None
    size: int | None = None
    source: Callable[[int], Any] | None = None
    before_deploy: Callable[[Any, dict[str, Any]], Any] | None = None
    secure: bool | Secure = False
    audit: MemberLogs | None = None
    record: Record = dataclasses.field(default_factory=Record)
    keep_models: int | None = None

    def __post_init__(self) -> None:
        check_owners(self.problem, self.algorithm)
        check_counts(rounds=self.rounds, quorum=self.quorum)
        for name in ("size", "keep_models"):
            if getattr(self, name) is not None:
                check_counts(**{name: getattr(self, name)})
        for name in ("timeout", "norm", "resend"):
            value = getattr(self, name)
            if name in ("resend", "norm") and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
                raise ValueError(f"{name} must be a finite number above 0; got {value!r}.")
        if not isinstance(self.record, Record) or self.record.every != 1:
            raise ValueError(f"record: a federation records every round, pf.Record(every=1); got {self.record!r}.")
        read_dtype(self.dtype)
        check_seed(self.seed)
        participation = self.algorithm.participation
        if self.quorum > participation.size(self.clients):
            most = participation.size(self.clients)
            raise ValueError(f"quorum={self.quorum}: a round has {most} clients, so the model would never be updated.")
        if participation.measures_losses:
            raise ValueError(
                f"participation: {type(participation).__name__} needs losses before clients participate, and a live "
                'server has no data to measure them; use estimate="last".'
            )
        if participation.live().keeps_time:
            raise ValueError(
                f"participation: {type(participation).__name__} simulates when clients finish, which a live federation "
                "observes; use pf.Asynchronous, pf.FirstK or pf.SchemeTwo, or pf.run for a simulation."
            )
        if participation.stays_at_work and self.privacy is not None:
            raise ValueError(
                f"privacy with {type(participation).__name__}: who fills a buffer depends on who is fast, which this "
                "library's accounting does not cover; use pf.SchemeTwo, or omit privacy."
            )
        if self.algorithm.deploy.lag:
            raise ValueError("deploy=pf.Late(rounds): a live federation deploys models immediately; use pf.run.")
        if self.algorithm.sharing.counts_entries:
            raise ValueError(
                f"sharing={type(self.algorithm.sharing).__name__}: partial models are simulated only; use pf.run, or "
                "a sharing such as pf.sharing.Heads."
            )
        if self.source is not None and not declared(self.algorithm.sharing, "ignores_data"):
            raise ValueError(
                f"sharing={type(self.algorithm.sharing).__name__}: which model a client's people face depends on "
                "their data, and real rows exist only after they have faced one; use a sharing that ignores the data, "
                "such as pf.sharing.Groups, or omit source to simulate."
            )
        if self.algorithm.absent == "reacts":
            raise ValueError(
                'absent="reacts": clients that sit out a round never see its model, so their data cannot react to it; '
                'use absent="frozen".'
            )
        if (secure := self.secure_settings) is not None:
            check_secure(secure, self.problem, self.algorithm, self.record)
        if self.source is not None and self.algorithm.deploy.each_step:
            raise ValueError(
                'deploy="step": people cannot react to every local step of a client; use deploy="round" (or '
                "pf.Every(k), or omit source to simulate)."
            )

    @property
    def secure_settings(self) -> Secure | None:
        """The settings of secure aggregation, None if it is off."""
        return read_secure(self.secure)

    @property
    def secure_threshold(self) -> int | None:
        """Minimum number of clients whose sum the server may see, None if it sees individual updates."""
        secure = self.secure_settings
        return None if secure is None else threshold_of(secure, self.algorithm, self.clients)

    @property
    def clients(self) -> int:
        """N."""
        return self.problem.clients

    def member_name(self, client: int) -> str:
        """The value of {client} in paths: its name in [data], or its number."""
        return self.source.tables.name(client) if isinstance(self.source, TableSource) else str(client)

    @functools.cached_property
    def ready(self) -> "Ready":
        """The federation checked, cast and on the device."""
        with self.precision():
            return Ready(self)

    @contextlib.contextmanager
    def precision(self) -> Iterator[None]:
        """The precision of the run, for this thread."""
        with jax.enable_x64(read_dtype(self.dtype) == jnp.float64):
            yield


class Ready:
    """A federation prepared to run. Created within its precision."""

    def __init__(self, federation: Federation):
        problem, algorithm = federation.problem, federation.algorithm
        algorithm = dataclasses.replace(algorithm, participation=algorithm.participation.live())
        precision = read_dtype(federation.dtype)
        with warnings.catch_warnings():
            if federation.source is not None:  # the rows here are only placeholders for the clients'
                warnings.filterwarnings("ignore", message=r".*\[batch-exceeds-table\]")
            setup, self.start, self.stable = make_ready(
                problem, algorithm, federation.theta, Clock(), federation.record, precision
            )
        if federation.secure_settings is not None:  # quantities that nobody sees are not recorded
            seen = {name: metric for name, metric in setup.metrics.items() if name not in UNSEEN}
            setup = dataclasses.replace(setup, metrics=seen)
        compute, _ = choose_compute(setup, self.start, 1, half=federation.dtype == "bfloat16")
        guarded = federation.privacy is not None or federation.secure_settings is not None
        self.setup: Setup = dataclasses.replace(setup, compute=compute, guarded=guarded)
        self.keys: RunKeys = run_keys(repeat_keys(federation.seed, 1)[0])
        if federation.privacy is not None and federation.privacy.noise == "secure":
            check_grid(problem, algorithm, self.start)
        state: State = init_state(self.setup, self.start, count_participation=True)
        self.memory_like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), state.clients)
        if federation.before_deploy is not None and has_numbers(self.memory_like.own):
            raise ValueError(
                f"before_deploy with sharing={type(algorithm.sharing).__name__}: clients deploy personal models, "
                "which the server never sees and cannot block; omit it, or use pf.sharing.OneModel()."
            )
        self.state = dataclasses.replace(state, clients=NOTHING)
        self.shared = state.theta  # what the server keeps at the start
        levels = levels_at_start(self.setup, self.shared)
        self.first = {name: np.asarray(value)[None] for name, value in levels.items()}  # of one repeat
        facts = {
            "numerics": NUMERICS,
            "problem": describe(problem),
            "algorithm": describe(federation.algorithm),
            "start": describe(self.start),
            "seed": federation.seed,
            "dtype": str(self.setup.weights.dtype),
            "privacy": None if federation.privacy is None else dataclasses.asdict(federation.privacy),
        }
        if federation.record.asks_losses:  # clients have to send them
            facts["losses"] = True
        if (secure := federation.secure_settings) is not None:
            facts["secure"] = dataclasses.asdict(secure)
        self.secure = secure
        self.facts: dict[str, Any] = facts
        self.identity = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]

    @functools.cached_property
    def asked_like(self) -> tuple[Cohort, Broadcast]:
        """Shapes of a cohort and its broadcast."""
        cohort, broadcast, _ = eqx.filter_eval_shape(open_round, self.setup, self.state, self.keys)
        return cohort, broadcast

    @functools.cached_property
    def upload_like(self) -> Upload:
        """Shapes of a client's upload."""
        cohort, broadcast = self.asked_like
        one = jax.ShapeDtypeStruct((), jnp.int32)
        steps = None if cohort.steps is None else one
        like = eqx.filter_eval_shape(one_client, self.setup, broadcast, self.memory_like, self.keys, one, steps)[0]
        sharing, estimator = self.setup.algorithm.sharing, self.setup.algorithm.estimator
        if not sharing.is_one and jax.tree.leaves(like.extra):
            raise ValueError(
                f"sharing={type(sharing).__name__} with {type(estimator).__name__}: it sends the server more than an "
                "update, computed from models that stay with the client; use pf.sharing.OneModel(), or another "
                "estimator."
            )
        if self.secure is not None and jax.tree.leaves(like.extra):
            raise ValueError(
                f"secure: {type(estimator).__name__} sends the server more than an update ({', '.join(like.extra)}), "
                "and secure aggregation reveals only the sum of updates; use another estimator, such as Minibatch()."
            )
        return like


def has_numbers(own: Any) -> bool:
    """Whether a client's own state contains a model, and not only the index of one of the server's."""
    return any(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in jax.tree.leaves(own))


def adds_private_noise(algorithm: Algorithm) -> bool:
    """Whether clients add secret noise."""
    return any(_noise(part) > 0 for part in (algorithm.estimator, algorithm.channel))


def shares_noise(algorithm: Algorithm) -> bool:
    """Whether privacy relies on the *sum* of the clients' messages: each adds its share of the noise, and they are
    averaged. With other aggregators individual messages count, and a silent client removes nothing."""
    return _noise(algorithm.channel) > 0 and bool(declared(algorithm.aggregator, "uses_sums_only"))


def _noise(part: Any) -> float:
    """The largest noise multiplier of a part, 0 if it draws no noise."""
    bound = said_bound(part) if part.grid_noise else None
    return 0.0 if bound is None else float(np.max(np.asarray(bound.noise_multiplier)))
