"""Linear summaries of models from files, from a registry, or known only through logged scores.

    g(score) = b . x + b_0 + rest,      theta = (b, b_0)

A model that is linear in the features is represented by its own coefficients; any other by a linear regression of its
score on rows sampled from the logs, the same for all models. g is the logit if all scores lie strictly between 0 and 1.
"""

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from performative.audit.deployments import Deployments, remarks, times_of
from performative.audit.files import Table
from performative.audit.moments import covariances
from performative.audit.queries import cross_moments, draw, fetch
from performative.audit.roles import Columns
from performative.audit.schema import LogError, Settings
from performative.audit.scoring import INTERCEPT, Scored, ScoringFit, linear_summary
from performative.audit.values import finite

PICKLES = (".pkl", ".pickle", ".joblib", ".sav")
# Number of rows that models score.
_ROWS = 2000
# A linear fit whose R^2 is within this of 1 is the model itself.
_SAME = 1e-8


def models_of(
    typed: Any, columns: Columns, settings: Settings, folder: Path | None, trust: bool, where: str
) -> Deployments:
    """Deployments named in the rows, with the models that [models] of audit.toml specifies."""
    names, time, unit = _deployments(typed, columns, settings, where)
    if settings.logged_scores:
        theta, fits, notes = _from_scores(typed, columns, names, where)
    else:
        rows = _drawn(typed, columns, where)
        models = [_open(name, settings, folder, trust) for name in names]
        theta, fits, notes = _from_models(models, rows, columns)
    notes += remarks(theta, unit != "order", len(names))
    return Deployments(names, time, theta, (*columns.features, INTERCEPT), unit, tuple(fits), tuple(notes))


def _deployments(
    typed: Any, columns: Columns, settings: Settings, where: str
) -> tuple[tuple[str, ...], np.ndarray, str]:
    """In order of time: by the calendar, by their names if these are numbers or dates, else alphabetically."""
    name = columns.deployment
    rows = typed.filter(typed[name].notnull())
    counted = fetch(rows.group_by(name).agg(n=rows.count()))
    found = {word: int(n) for word, n in zip(counted[name].tolist(), counted["n"], strict=True)}
    if not found:
        raise LogError("no row names a deployment.", where, column=name)
    if settings.period is not None:
        days = dict(zip(settings.period.names, settings.period.days, strict=True))
        words = [word for word in settings.period.names if word in found]
        return tuple(words), np.array([days[word] for word in words]), "days"
    words = sorted(found)
    try:
        time, unit = times_of(words, Table(where, (name,)), name)
    except LogError:
        return tuple(words), np.arange(1.0 * len(words)), "order"
    order = np.argsort(time, kind="stable")
    return tuple(words[i] for i in order), time[order], unit


def _drawn(typed: Any, columns: Columns, where: str) -> np.ndarray:
    """[n, k] complete rows of all deployments, for models to score."""
    rows = typed.select(**{f"f{j}": finite(typed[name]) for j, name in enumerate(columns.features)},
                        **{name: typed[name] for name in ("__row",) if name in typed.columns})  # fmt: skip
    names = [f"f{j}" for j in range(len(columns.features))]
    whole = rows.filter([rows[name].notnull() for name in names]).mutate(one=1)
    total = np.array([float(fetch(whole.agg(n=whole.count()))["n"][0])])
    row = "__row" if "__row" in typed.columns else None
    found = fetch(draw(whole, row, 0, {"one": [1]}, total, total, _ROWS, names))
    x = np.column_stack([found[name].astype(np.float64) for name in names])[:_ROWS]
    if len(x) < len(names) + 2:
        raise LogError(f"{len(x)} complete rows are too few for {len(names) + 1} coefficients.", where)
    return x


def _open(deployment: str, settings: Settings, folder: Path | None, trust: bool) -> tuple[str, Any]:
    """The path of a model's file and the function that scores rows with it."""
    if settings.registry:
        return _registered(settings.registry, deployment, trust)
    files = settings.model_files
    path = files.replace("{deployment}", deployment) if isinstance(files, str) else (files or {}).get(deployment)
    if path is None:
        raise LogError(f"models.files has no file for deployment {deployment!r}.", "audit.toml")
    base = (folder or Path()).resolve()
    file = (base / path).resolve()
    if not file.is_file():
        raise LogError(f"models.files: there is no file {path!r} for deployment {deployment!r}.", "audit.toml")
    if file.suffix == ".onnx":
        return path, read_onnx(file)
    if file.suffix not in PICKLES:
        raise LogError(f"models.files: {path!r} is not a {', '.join((*PICKLES, '.onnx'))} file.", "audit.toml")
    if not trust:
        raise LogError(
            f"{path!r} is a pickle, and loading it runs the code it contains. If you know who made it, pass --trust "
            "(trust=True); otherwise export the model as ONNX, or provide theta_<name> or scores.", "audit.toml",
        )  # fmt: skip
    return path, _scorer(path, unpickled(file))


def unpickled(file: Path) -> Any:
    try:
        import joblib

        return joblib.load(file)
    except (pickle.UnpicklingError, EOFError, AttributeError, ImportError, ValueError, KeyError) as error:
        raise LogError(
            f"cannot be loaded ({str(error) or type(error).__name__}); save the model again.", file
        ) from error


def _scorer(path: str, model: Any) -> Any:
    """The function that scores rows: the probability of class 1, a decision score, or a prediction."""
    named = getattr(model, "feature_names_in_", None)
    for method in ("predict_proba", "decision_function", "predict"):
        if hasattr(model, method):
            score = getattr(model, method)
            break
    else:
        if not hasattr(model, "coef_"):
            raise LogError(f"{path!r} contains {type(model).__name__}, which cannot score rows.", "audit.toml")
        coef, intercept = np.ravel(model.coef_), float(np.ravel(getattr(model, "intercept_", 0.0))[0])
        return lambda x, names: x @ coef + intercept

    def scored(x: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
        import pandas as pd

        rows: Any = x
        if named is not None:
            strange = [str(name) for name in named if name not in names]
            if strange:
                raise LogError(f"{path!r} was fitted on {strange[0]!r}, which is not a feature here.", "audit.toml")
            rows = pd.DataFrame(x, columns=list(names))[list(named)]
        elif getattr(model, "n_features_in_", len(names)) != len(names):
            raise LogError(
                f"{path!r} was fitted on {model.n_features_in_} unnamed columns; there are {len(names)} features.",
                "audit.toml",
            )
        out = np.asarray(score(rows), np.float64)
        if out.ndim == 2 and out.shape[1] > 2:
            raise LogError(f"{path!r} has {out.shape[1]} classes; an audit needs two.", "audit.toml")
        return out[:, -1] if out.ndim == 2 else out

    return scored


def read_onnx(file: Path) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise LogError("ONNX models require onnxruntime: pip install onnxruntime.", file) from error
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    entry = session.get_inputs()[0].name

    def scored(x: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
        out: Any = session.run(None, {entry: x.astype(np.float32)})[-1]
        if isinstance(out, list):  # scikit-learn's converter returns a map of class to probability for each row
            return np.array([[row[key] for key in sorted(row)][-1] for row in out], np.float64)
        return np.asarray(out, np.float64).reshape(len(x), -1)[:, -1]

    return scored


def _registered(registry: str, deployment: str, trust: bool) -> tuple[str, Any]:
    """Version `deployment` of a model in an MLflow registry."""
    try:
        from mlflow import pyfunc
    except ImportError as error:
        raise LogError("models.registry requires MLflow: pip install mlflow-skinny.", "audit.toml") from error
    if not trust:
        raise LogError(
            "models.registry: MLflow unpickles models, which runs the code they contain; pass --trust (trust=True) if "
            "you know who made them.", "audit.toml",
        )  # fmt: skip
    uri = f"models:/{registry}/{deployment}"
    try:
        model = pyfunc.load_model(uri)
    except Exception as error:  # MLflow's errors have no common class
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise LogError(f"{uri}: {first}", "audit.toml") from error
    inner = getattr(model, "get_raw_model", lambda: None)()
    return uri, _scorer(uri, model if inner is None else inner)


def _from_models(
    models: list[tuple[str, Any]], x: np.ndarray, columns: Columns
) -> tuple[np.ndarray, list[ScoringFit], list[str]]:
    """theta [T, k + 1] of models from their scores on the same rows."""
    scores = [np.asarray(score(x, columns.features), np.float64) for _, score in models]
    for (path, _), score in zip(models, scores, strict=True):
        if score.shape != (len(x),) or not np.all(np.isfinite(score)):
            raise LogError(f"{path!r} must return one finite score per row.", "audit.toml")
    logit = all(np.all((score > 0) & (score < 1)) for score in scores)
    found = []
    for (path, _), score in zip(models, scores, strict=True):
        target = np.log(score) - np.log1p(-score) if logit else score
        z = np.column_stack([x, score, target])
        made = Scored(len(x), z.mean(axis=0), np.cov(z.T), logit, 0)
        found.append(linear_summary(path, made, logit, columns.features))
    link = "logit of the score" if logit else "score"
    notes = [f"Models are summarized by a linear regression of the {link} on {len(columns.features)} features."]
    # Exact summaries are the models themselves and need no note.
    notes = [] if all(fit.r_squared > 1 - _SAME for _, fit, _ in found) else notes
    return (
        np.stack([theta for theta, _, _ in found]),
        [fit for _, fit, _ in found],
        notes + [note for _, _, lines in found for note in lines],
    )


def _from_scores(
    typed: Any, columns: Columns, names: tuple[str, ...], where: str
) -> tuple[np.ndarray, list[ScoringFit], list[str]]:
    """theta [T, k + 1] from regressions of logged scores on the rows of each deployment, computed by the engine."""
    if columns.score is None:
        raise LogError("[models] scores = true needs a column of scores: [columns] score = ...", where)
    k = len(columns.features)
    made = {f"f{j}": finite(typed[name]) for j, name in enumerate(columns.features)}
    rows = typed.select(deployment=typed[columns.deployment], **made, score=finite(typed[columns.score]))
    whole = rows.filter([rows[name].notnull() for name in rows.columns])
    told = fetch(whole.agg(low=whole.score.min(), high=whole.score.max(),
                           **{f"m{j}": whole[f"f{j}"].mean() for j in range(k)}, m=whole.score.mean()))  # fmt: skip
    logit = bool(told["low"][0] > 0 and told["high"][0] < 1)
    target = whole.score.ln() - (1.0 - whole.score).ln() if logit else whole.score
    whole = whole.mutate(target=target)
    middle = float(told["m"][0])
    center = [float(told[f"m{j}"][0]) for j in range(k)] + [np.log(middle) - np.log1p(-middle) if logit else middle]
    keys, count, mean, squares = cross_moments(
        whole, ["deployment"], [f"f{j}" for j in range(k)] + ["target"], np.array(center), ["deployment"]
    )
    at = {word: i for i, word in enumerate(keys["deployment"].tolist())}
    cov, found = covariances(count, squares), []
    for name in names:
        i = at.get(name)
        if i is None or count[i] < k + 2:
            rows_there = 0 if i is None else int(count[i])
            raise LogError(
                f"deployment {name!r}: {rows_there} scored rows are too few for {k + 1} coefficients.", where
            )
        # `linear_summary` expects the score and its logit after the features; here the target serves as both.
        both = [*range(k), k, k]
        made_of = Scored(int(count[i]), mean[i][both], cov[i][np.ix_(both, both)], logit, 0)
        found.append(linear_summary(name, made_of, logit, columns.features))
    link = "logit of the logged score" if logit else "logged score"
    notes = [
        f"Models are known only through their scores: theta is a linear regression of the {link} on {k} features in "
        "the rows of each deployment. If a model is not linear, theta also changes with the people who were scored."
    ]
    return (
        np.stack([theta for theta, _, _ in found]),
        [fit for _, fit, _ in found],
        notes + [note for _, _, lines in found for note in lines],
    )
