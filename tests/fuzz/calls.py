"""One call that works for every public callable, and values that are wrong but plausible in place of an argument.

Parts are not listed here: theirs are the examples that their own tests declare (`tests/part_examples.py`).
"""

import inspect
import sys
import tempfile
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd

import performative as pf
from performative.config import load_experiment

sys.path.append(str(Path(__file__).parents[1]))  # the driver runs without pytest, which would have done so
from part_examples import first_examples, scope

# Names that the expressions may use.
NAMES = scope(clients=3, rows=8, features=2, cohort=2)
SCOPE = NAMES | {
    "jnp": jnp, "jax": jax, "pd": pd, "optax": optax, "eqx": eqx,
    "P": pf.Problem(pf.losses.squared, NAMES["G"]),
    "TABLE": pf.Problem(pf.losses.logistic(0.1), pf.populations.Strategic(NAMES["X"], NAMES["Y"], 0.1)),
    "A": pf.p_fedavg(rate=0.1),
    "GAME": pf.cases.linear_game([1.0, 2.0], [[-1.0, 0.1], [0.2, -1.0]], 1.5),
    "NET": pf.networks.mlp(2, 2, width=3),
    "PRIVATE": pf.pcsgd(0.1, clip=1.0, noise_multiplier=2.0),
    "FRAME": pd.DataFrame({"bank": list("aabb"), "income": [1.0, 2.0, 3.0, 4.0], "default": [0, 1, 0, 1]}),
    "LABELS": np.repeat([0, 1, 2], 10),
    "GIVEN": pf.theory.Assumptions.of_gaussian([0.0, 1.0, 2.0], [0.2, 0.4, 0.6], 1.0, G=4.0),
    "THEOREM": pf.theory.p_fedavg(pf.theory.Assumptions.of_gaussian([0.0, 1.0], [0.2, 0.4], 1.0), 2),
    "ASSUMED": pf.theory.PricingDescent([6.0, 7.0], [1.0, 3.0]).assumptions(3.0, 4.0),
    "KNOWN": pf.theory.PerformativeAssumptions(L=1.0, gamma=1.0, rho=1.0, gap=1.0, G=2.0, F=1.0, M=0.1, l_max=4.0),
    "CLIPPED": pf.theory.ClippedQuadratic(0.1, 10.0, 1.0, 0.05).assumptions(radius=5.0, start=0.0),
    "DICE": pf.theory.ClippedQuadratic(0.1, 10.0, 1.0, 0.05).dice_assumptions(start=0.0, M=1.0),
    "FEDERATED": pf.theory.FederatedAssumptions(L=1.0, sigma=1.0, sigma_g=0.5, gap=2.0, clients=10),
    "SELECTED": pf.theory.SelectionAssumptions(mu=1.0, G=2.0, rho_bar=1.2, rho_tilde=1.5, Gamma=0.3, distance=4.0),
    "CYCLIC": pf.theory.CyclicAssumptions(1.0, 2.0, 1.0, 0.5, gamma=0.2, clients=12, groups=3, participants=2),
}  # fmt: skip
_ROUNDS = np.arange(3)
SCOPE["H"] = pf.History(
    theta=np.zeros((2, 3)), rounds=_ROUNDS, records={"consensus": np.ones((2, 3))}, risk_rounds=_ROUNDS[1:],
    risks={"performative_risk": np.ones((2, 2))}, weights=np.full(3, 1 / 3), participation=None,
    stopped_at=np.full(2, -1), meta={"seed": 0, "algorithm": "p_fedavg"},
)  # fmt: skip
_LONG = np.arange(301)
SCOPE["LONG"] = pf.History(
    theta=np.random.default_rng(0).normal(size=(2, 301)), rounds=_LONG, records={}, risk_rounds=_LONG[1:1], risks={},
    weights=np.full(3, 1 / 3), participation=None, stopped_at=np.full(2, -1), meta={},
)  # fmt: skip
SCOPE["FOLDER"] = tempfile.mkdtemp(prefix="fuzz-")
SCOPE["H"].save(f"{SCOPE['FOLDER']}/saved.nc")
np.save(f"{SCOPE['FOLDER']}/table.npy", np.ones((2, 3, 2), np.float32))


def run_file(text: str):
    """What `performative run` does with a file of this text."""
    file = Path(SCOPE["FOLDER"]) / "experiment.toml"
    file.write_text(text)
    return load_experiment(file).run()


SCOPE["FILE"] = run_file
ETA = "2.0 / (np.arange(20) + 20.0)"

EXAMPLES = {example.name: example for example in first_examples()}
PARTS = {name: example.arguments for name, example in EXAMPLES.items()}
RECORDS = {
    # functions that make a part
    "pf.losses.quadratic": "scale=1.0",
    "pf.losses.ridge": "penalty=0.1",
    "pf.losses.revenue": "penalty=0.1",
    "pf.losses.logistic": "penalty=0.1",
    "pf.losses.cross_entropy": "model=pf.losses.linear_scores",
    "pf.optimizers.as_optimizer": "tx=optax.scale_by_adam()",
    "pf.schedules.constant": "value=0.1",
    "pf.schedules.harmonic": "scale=2.0, offset=20.0",
    "pf.schedules.theorem": "assumptions=GIVEN, local_steps=2",
    "pf.Conditions": "spread=[[1.0]], rows=[20], theta=[0.0]",
    # clock, recording, promise
    "pf.Clock": "compute=1.0, communication=0.5",
    "pf.Cost": "step=1.0",
    "pf.Record": "every=1, theta='all', risks=False, consensus=True, limit=1e6",
    "pf.Metric": "function=lambda view: view.theta * 2, kind='level'",
    "pf.callbacks.Progress": "show=False",
    "pf.callbacks.Stop": "condition=lambda news: False, every=2",
    "pf.callbacks.Watching": "watch=pf.watch(drift='none'), columns=['consensus'], every=2, repeat=0, stop=False",
    "pf.callbacks.Threshold": "number='consensus', below=0.1",
    "pf.Privacy": "delta=1e-3",
    # the whole
    "pf.Problem": "loss=pf.losses.squared, population=G",
    "pf.Problem.from_frame": "frame=FRAME, client='bank', label='default'",
    "pf.Game": "problems=P",
    "pf.Algorithm": "rate=0.1",
    "pf.p_fedavg": "rate=0.1",
    "pf.fedavg": "rate=0.1",
    "pf.multi_agent_pp": "rate=0.1",
    "pf.pg": "rate=0.1, window=5, batch=pf.Fixed(4)",
    "pf.pofl": "rate=0.1, window=5, batch=pf.Fixed(4)",
    "pf.profl": "rate=0.1, window=5, batch=pf.Fixed(16)",
    "pf.pcsgd": "rate=0.1, clip=1.0, noise_multiplier=0.5",
    "pf.dicesgd": "rate=0.1, clip=1.0, memory_clip=10.0, noise_multiplier=0.5",
    "pf.fedprox": "rate=0.1, mu=0.1",
    "pf.scaffold": "rate=0.1",
    "pf.fedavgm": "rate=0.1",
    "pf.fedadam": "rate=0.1",
    "pf.fedyogi": "rate=0.1",
    "pf.qffl": "rate=0.1, q=1.0",
    "pf.afl": "rate=0.1",
    "pf.snapshots": "rate=0.1, k=2",
    "pf.two_point": "rate=0.1, radius=0.5",
    "pf.one_point": "rate=0.1, radius=0.5",
    "pf.plug_in": "rate=0.1, radius=0.5, deployments=4",
    "pf.robust": "rate=0.1, radius=0.1",
    "pf.no_regret": "rate=0.1",
    "pf.confidence_bounds": "models=[0.0, 1.0], slope=1.0",
    "pf.fednova": "rate=0.1",
    "pf.fedexp": "rate=0.1",
    "pf.fedvarp": "rate=0.1",
    "pf.cluster_fedvarp": "rate=0.1, clusters=2",
}
CASES = {
    "pf.cases.quadratic": "beta=0.05, rows=20",
    "pf.cases.pricing_demands": "clients=2, goods=2",
    "pf.cases.pricing_contribution": "clients=2",
    "pf.cases.house_pricing": "",
    "pf.cases.regression_contribution": "clients=2",
    "pf.cases.strategic_classes": "kind='same', clients=2",
    "pf.cases.credit_table": "banks=2",
    "pf.cases.credit": "banks=2",
    "pf.cases.credit_default": "x=X[0], y=Y[0], beta=0.1",
    "pf.cases.linear_game": "b=[1.0, 2.0], m=[[-1.0, 0.1], [0.2, -1.0]], penalty=1.5",
    "pf.cases.competing_banks": "banks=2",
    "pf.cases.images": "data='digits', clients=2, each=5, held_out=5",
    "pf.networks.mlp": "inputs=2, outputs=2, width=3",
    "pf.networks.cnn": "shape=(8, 8), outputs=2, channels=(2, 2), width=3",
    "pf.networks.lenet5": "shape=(16, 16, 3), outputs=2",
    "pf.networks.resnet18": "shape=(8, 8, 3), outputs=2, width=4",
    "pf.networks.split": "model=eqx.nn.Linear(2, 2, key=jax.random.key(0))",
    "pf.partition.iid": "rows=30, clients=3",
    "pf.partition.dirichlet": "labels=LABELS, clients=3, alpha=0.5",
    "pf.partition.by_label": "labels=LABELS, clients=3, labels_each=2",
    "pf.partition.by_quantity": "rows=30, clients=3, alpha=0.5",
    "pf.partition.counts_of": "labels=LABELS, parts=[[0, 1], [2, 3]]",
    "pf.partition.tables": "x=np.ones((30, 2)), y=LABELS, parts=[[0, 1], [2, 3, 4]]",
    "pf.tables.Packed": "raw=np.zeros((3, 4, 2), np.uint8), scale=0.5",
}
PROMISES = {
    "pf.privacy.spent": "noise_multiplier=2.0, steps=10, delta=1e-3",
    "pf.privacy.calibrate": "epsilon=1.0, delta=1e-3, steps=10",
    "pf.privacy.guarantee": "problem=TABLE, algorithm=PRIVATE",
    "pf.privacy.Ledger": "privacy=pf.Privacy(1e-3), problem=TABLE, algorithm=PRIVATE",
    "pf.privacy.discrete_gaussian": "sigma=100, shape=(5,)",
    "pf.privacy.corollary_3_6_as_printed": "epsilon=1.0, delta=1e-5, steps=100, rows=100, clip=1.0",
}
_BETA = "beta=THEOREM.beta, gamma=THEOREM.gamma"
THEORY = {
    "largest_stale_step": "sensitivity=0.3, staleness=2",
    "stale_radius": "eta=0.3, sensitivity=0.3, staleness=2, late=1",
    "drift_error": "velocity=0.1, sensitivity=0.3, scale=1.0, eta=0.1",
    "best_step": "velocity=0.1, sensitivity=[0.2, 0.4], scale=1.0",
    "retraining_error": "velocity=0.1, sensitivity=0.3, scale=1.0, period=3, rows=5",
    "best_period": "velocity=0.1, sensitivity=0.3, cost=2.0",
    "TwoGroups": "mean=[0.0, 2.0], scale=1.0, stay=pf.participation.Patience(1.0, 4.0), join=0.1",
    "Assumptions": "mu=1.0, L=1.0, sigma=1.0, varsigma=1.0, eps_bar=0.2, eps_max=0.4, distance=1.0",
    "Assumptions.of_clients": "mu=1.0, L=1.0, sigma=1.0, varsigma=1.0, eps=[0.1, 0.2], distance=1.0",
    "Assumptions.of_gaussian": "mean=[0.0, 1.0], sensitivity=[0.2, 0.4], scale=1.0",
    "proposition_2_8": "assumptions=GIVEN",
    "proposition_2_9": "assumptions=GIVEN",
    "p_fedavg": "assumptions=GIVEN, local_steps=2",
    "theorem_3_1": "assumptions=GIVEN, local_steps=2",
    "theorem_3_2": "assumptions=GIVEN, local_steps=2, k=2",
    "theorem_3_3": "assumptions=GIVEN, local_steps=2, k=2",
    "theorem_b_4": f"assumptions=GIVEN, local_steps=2, {_BETA}",
    "theorem_c_5": f"assumptions=GIVEN, local_steps=2, {_BETA}, scheme='two', k=2",
    "theorem_d_5": f"assumptions=GIVEN, local_steps=2, {_BETA}",
    "theorem_d_8": f"assumptions=GIVEN, local_steps=2, {_BETA}, scheme='one', k=2",
    "gaussian_points": "mean=[0.0, 1.0], sensitivity=[0.2, 0.4]",
    "gaussian_moments": f"mean=[0.0, 1.0], sensitivity=[0.2, 0.4], scale=1.0, eta={ETA}",
    "gaussian_rate": "mean=[0.0, 1.0], sensitivity=[0.2, 0.4], scale=1.0, beta=4.0",
    "gaussian_beside": "theorem=THEOREM, mean=[0.0, 1.0], sensitivity=[0.2, 0.4], scale=1.0, rounds=20",
    "step_noise": "covariance=np.eye(2)[None].repeat(3, 0), gradient=np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])",
    "linear_rate": "jacobian=np.diag([1.0, 0.6]), noise=np.eye(2), beta=4.0",
    "steps_to_accuracy": "theorem=THEOREM, accuracy=0.01",
    "total_time": "steps=1000.0, local_steps=4, cost=10.0",
    "best_local_steps": "steps=lambda E: 1000.0 + 50.0 * E, cost=10.0",
    "gaussian_local_steps": "mean=[0.0, 1.0], sensitivity=[0.2, 0.4], scale=1.0, cost=10.0",
    "PricingDescent": "demand=[6.0, 7.0], sensitivity=[1.0, 3.0]",
    "PerformativeAssumptions": "L=1.0, gamma=1.0, rho=1.0, gap=1.0",
    "theorem_5_10": "given=ASSUMED, eta=0.05, steps=5",
    "corollary_5_11": "given=ASSUMED, eta=0.05, steps=5",
    "client_drift": "given=ASSUMED, eta=0.05, local_steps=4",
    "location_smoothness": "gamma=2.0",
    "mixture_sensitivity": "group_sensitivity=0.1, distance=2.0, share_slope=0.25",
    "lemma_5_6": "models=(0.0, 3.0), data=(-2.0, 8.0), slope=lambda t: np.full(len(t), 1.5)",
    "lemma_5_7": "given=KNOWN, eta=0.05, window=10, reach=0.5, samples=100, variance=1.0",
    "exact_jacobian_error": "differences=np.linspace(0.1, 1.0, 10)[None], variance=1.0, samples=100",
    "contaminated_variance": "variance=1.0, contamination=0.1, outliers=1.0, offset=20.0",
    "lemma_5_8": "given=KNOWN, samples=100, variance=1.0",
    "lemma_5_9": "given=KNOWN, jacobian_error=0.1, samples=100, fisher=1.0",
    "lemma_c_1": "given=ASSUMED, eta=0.05, local_steps=4",
    "lemma_c_2": "given=KNOWN, first=0.1, second=0.1",
    "sample_size": "given=KNOWN, tolerance=5.0, eta=0.05, window=10, reach=5.0, variance=1.0",
    "ClippedQuadratic": "p=0.1, a=10.0, b=1.0, beta=0.05",
    "ClippedAssumptions": "mu=1.0, L=1.0, beta=0.05, G=1.0, distance=1.0",
    "pcsgd": f"given=CLIPPED, clip=1.0, eta={ETA}",
    "bias_bound": "given=CLIPPED, clip=1.0",
    "bias_amplification": "mu=1.0, L=10.0, beta=0.05",
    "one_step": "given=CLIPPED, clip=1.0, eta=0.1, square=1.0, pull=-0.5",
    "clip_pull": "given=CLIPPED, clip=1.0, eta=0.1, square=1.0",
    "gradient_change": "L=10.0, beta=0.05, model=1.0, world=1.0",
    "optimal_step": "given=CLIPPED, clip=1.0, rounds=200",
    "optimal_clip": f"given=CLIPPED, eta={ETA}, multiplier=1.0",
    "noise_share": "multiplier=1.0, rounds=200",
    "printed_noise_share": "epsilon=1.0, delta=1e-5, records=1000",
    "harmonic_kappa": "given=CLIPPED, scale=4.0",
    "optimal_clip_limit": "given=CLIPPED, phi=0.005, kappa=0.1",
    "optimal_clip_and_step": "given=CLIPPED, phi=0.005",
    "DiceAssumptions": "mu=1.0, L=1.0, beta=0.05, G=1.0, B=1.0, M=1.0, distance=1.0",
    "dicesgd": f"given=DICE, eta={ETA}",
    "dice_model_error": f"bound=pf.theory.dicesgd(DICE, {ETA}), given=DICE, eta={ETA}",
    "travel": f"eta={ETA}, clip=1.0",
    "FederatedAssumptions": "L=1.0, sigma=1.0, sigma_g=0.5, gap=2.0, clients=10",
    "fedavg": "given=FEDERATED, eta=0.01, local_steps=4, rounds=100",
    "fedvarp": "given=FEDERATED, eta=0.01, local_steps=4, rounds=100, participants=5",
    "participation_variance": "clients=10, participants=5",
    "tuned_orders": "local_steps=4, rounds=100, participants=5",
    "quadratic_floor": "mean=[1.0, 3.0], slope=[0.4, 1.0], eta=0.1, local_steps=4",
    "objective_weights": "weights=[0.5, 0.5], local_steps=[4, 1]",
    "effective_steps": "weights=[0.5, 0.5], local_steps=[4, 1]",
    "inconsistency": "weights=[0.5, 0.5], local_steps=[4, 1], dissimilarity=1.0",
    "settled_point": "mean=[1.0, 3.0], slope=[0.4, 1.0], weights=[0.5, 0.5], eta=0.01, local_steps=[4, 1]",
    "extrapolation": "squares=[1.0, 1.0], mean_square=0.1",
    "SelectionAssumptions": "mu=1.0, G=2.0, rho_bar=1.2, rho_tilde=1.5, Gamma=0.3, distance=4.0",
    "biased_selection": f"given=SELECTED, eta={ETA}",
    "selection_floor": "given=SELECTED",
    "selection_orders": "given=SELECTED, rounds=200",
    "CyclicAssumptions": "mu=1.0, L=2.0, gap=1.0, alpha=0.5, gamma=0.2, clients=12, groups=3, participants=2",
    "cyclic_orders": "given=CYCLIC, rounds=300",
    "cycle_point": "mean=[1.0, 3.0, 5.0], slope=[0.4, 1.0, 1.0], groups=[[0], [1, 2]], eta=0.01",
}
# Some of these take seconds where nothing is refused.
ANALYSES = {
    "pf.run": "problem=P, algorithm=A, rounds=2, theta=0.0, record=pf.Record(risks=False)",
    "pf.sweep": "problem=P, algorithm=A, over={'rate': [0.1, 0.2]}, rounds=2, theta=0.0",
    "pf.estimate_memory": "problem=P, algorithm=A, theta=0.0",
    "pf.moments": "problem=P, algorithm=A, rounds=2, theta=0.0",
    "pf.watch": "drift='none', alpha=0.05, columns=['x'], loss_range=(0.0, 1.0), gap_limit=0.1, window=10",
    "pf.stability": "problem=P, algorithm=A, over={'rate': [0.1, 0.2]}, theta=0.0",
    "pf.stable_point": "problem=P",
    "pf.mixed_regret": "problem=P, models=[0.0, 1.0]",
    "pf.optimal_point": "problem=P",
    "pf.equilibria": "problem=P",
    "pf.forecast": "problem=P, algorithm=A",
    "pf.nash_point": "game=GAME",
    "pf.social_point": "game=GAME",
    "pf.player_risks": "game=GAME, theta=[1.0, 1.0]",
    "pf.play_outlook": "game=GAME, algorithm=A",
    "pf.play_verdict": "history=H",
    "pf.repeated_risk_minimization": "problem=P, deployments=2",
    "pf.tune": "problem=P, algorithm=A, free=['rate'], cost='final', rounds=2, starts=1, iterations=1",
    "pf.repeated_gradient_descent": "problem=P, rate=0.1, deployments=2",
    "pf.certify": "problem=P, samples=16",
    "pf.plan": "problem=P, cost=pf.Cost(), accuracy=0.5, local_steps=(1, 2), batches=(4,), pilots=False",
    "pf.assess": "people=FRAME, label='default', ignore=(), rows=20, progress=False",
    "pf.design": "source=P, effect=0.5, rows=20, deployments=8, theta=0.0",
    "pf.scoreboard": "problem=TABLE, algorithms={'a': A}, rounds=2, repeats=2, theta=np.zeros(2)",
    "pf.average_drift": "problem=P, algorithm=A, theta=0.0",
    "pf.selection_skew": "problem=P, participation=pf.SchemeTwo(2), models=[0.0, 1.0], optimum=0.5, draws=4",
    "pf.compare": "histories={'a': H, 'b': H}, metric='consensus'",
    "pf.confidence": "history=LONG, level=0.9, problem=P, algorithm=A",
    "LONG.interval": "level=0.9",
    "pf.aggregators.mean_of_last_two": "history=H",
    "H.__getitem__": "name='consensus'",
    "H.plot": "quantity='consensus'",
    "H.save": "path=FOLDER + '/history.nc'",
    "pf.History.load": "path=FOLDER + '/saved.nc'",
    "pf.privacy.attack.audit": "problem=None, algorithm=PRIVATE, rows=4, rounds=1, delta=0.01, repeats=50, canaries=0",
    "pf.privacy.attack.neighbors": "algorithm=PRIVATE, rows=4, rounds=1, delta=0.01, repeats=50",
    "pf.privacy.attack.messages": "algorithm=PRIVATE, rows=4, rounds=1, delta=0.01, repeats=50",
    "pf.privacy.attack.release": "algorithm=PRIVATE, repeats=50",
    "pf.privacy.attack.canaries": "algorithm=PRIVATE, rows=4, canaries=50",
    "pf.tables.write": "path=FOLDER + '/x.npy', clients=[np.ones((2, 2)), np.ones((3, 2))], rows=3",
    "pf.tables.OnDisk": "path=FOLDER + '/table.npy'",
    "pf.plotting.plot_history": "history=H",
    "pf.plotting.plot_partition": "labels=LABELS, parts=[[0, 1], [2, 3]]",
    "pf.report.write": "thing=H, path=FOLDER + '/page.html'",
}
CALLS = PARTS | RECORDS | CASES | PROMISES | {f"pf.theory.{name}": arguments for name, arguments in THEORY.items()}
ALL = CALLS | ANALYSES

WRONG = (
    "0", "-1", "2", "7", "0.0", "-0.5", "1.5", "True", "None", "'x'", "''", "np.nan", "np.inf",
    "-np.inf", "[]", "[1, 2]", "[0.5, 0.5, 0.5]", "['a', 'b']", "[[1], [1, 2]]", "np.zeros(3)", "-np.ones(3)",
    "np.ones((2, 2))", "np.ones(2, complex)", "np.array(['a'])", "np.float32(0.5)", "np.int64(2)", "np.array(2)",
    "jnp.asarray(0.5)", "jnp.ones(3)", "1j", "{}", "{'a': 1}", "(1, 2)", "range(3)", "object()", "lambda *a: 0",
    "pf.Full()", "G", "b'x'",
)  # fmt: skip


def parameters(name: str) -> list[str]:
    """What the callable takes by name."""
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [p.name for p in inspect.signature(eval(name, SCOPE)).parameters.values() if p.kind not in kinds]


def replaced(name: str, parameter: str, value: str) -> str:
    """The call that works, with one argument given another value."""
    import ast

    call = ast.parse(f"f({ALL[name]})", mode="eval").body
    given = {k.arg: ast.unparse(k.value) for k in call.keywords}
    return f"{name}({', '.join(f'{k}={v}' for k, v in (given | {parameter: value}).items())})"
