"""A client's log of past deployments: one row of summaries per deployment."""

from dataclasses import dataclass

import numpy as np

Numbers = np.ndarray


@dataclass(frozen=True, eq=False)
class ClientLog:
    """Summaries of the data that one client collected under each deployed model, in order of time.

    Attributes:
        theta: [T, d] the deployed model, one row per deployment
        time: [T] when it was deployed; only differences matter
        count: [T] rows collected under it
        mean: [T, q] means of the q numeric columns (features, label last if there is one)
        cov: [T, q, q] covariance of the rows within a deployment
        sample: [T, r, q] at most r rows per deployment, padded with NaN; None if none were kept
        columns: names of the q columns, None for x0, x1, ...
        parameters: names of the d parameters, None for theta0, theta1, ...

    The rows themselves are needed only for Wasserstein distances and for losses other than the squared loss.
    """

    theta: Numbers
    time: Numbers
    count: Numbers
    mean: Numbers
    cov: Numbers
    sample: Numbers | None = None
    columns: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    name: str = "client"

    def __post_init__(self) -> None:
        for field in ("theta", "time", "count", "mean", "cov", "sample"):
            value = getattr(self, field)
            if value is not None:
                object.__setattr__(self, field, np.asarray(value, np.float64))
        if self.theta.ndim != 2 or self.mean.ndim != 2:
            raise ValueError(
                f"ClientLog: theta must be [T, d] and mean [T, q]; got shapes {self.theta.shape} and {self.mean.shape}."
            )
        (T, d), q = self.theta.shape, self.mean.shape[1]
        shapes = {"time": (T,), "count": (T,), "mean": (T, q), "cov": (T, q, q)}
        for field, shape in shapes.items():
            value = getattr(self, field)
            if value.shape != shape:
                raise ValueError(
                    f"ClientLog: {field} must have shape {shape}, one row per deployment; got {value.shape}."
                )
            if not np.all(np.isfinite(value)):
                raise ValueError(f"ClientLog: {field} contains non-finite values; drop those deployments.")
        if not np.all(np.isfinite(self.theta)):
            raise ValueError("ClientLog: theta contains non-finite values; drop those deployments.")
        if np.any(np.diff(self.time) <= 0):
            raise ValueError(
                "ClientLog: time must increase from deployment to deployment; sort, and merge equal times."
            )
        if np.any(self.count < 2):
            at = int(np.argmin(self.count))
            raise ValueError(
                f"ClientLog: count must be 2 or more; count[{at}] = {self.count[at]:g}. Drop that deployment."
            )
        if self.sample is not None and (self.sample.ndim != 3 or self.sample.shape[::2] != (T, q)):
            raise ValueError(f"ClientLog: sample must be [{T}, r, {q}]; got shape {self.sample.shape}.")
        for field, size, stem in (("columns", q, "x"), ("parameters", d, "theta")):
            names = getattr(self, field)
            names = tuple(f"{stem}{k}" for k in range(size)) if len(names) == 0 else tuple(names)
            if len(names) != size:
                raise ValueError(f"ClientLog: {field} must contain {size} names; got {len(names)}.")
            object.__setattr__(self, field, names)

    @property
    def deployments(self) -> int:
        """T."""
        return self.theta.shape[0]

    @property
    def spread(self) -> Numbers:
        """[q] standard deviation of each column within a deployment, pooled over deployments."""
        return np.sqrt(np.average(self.column_variances, axis=0, weights=self.count))

    @property
    def column_variances(self) -> Numbers:
        """[T, q] variance of each column within each deployment."""
        return np.diagonal(self.cov, axis1=-2, axis2=-1)

    @property
    def series(self) -> tuple[Numbers, Numbers]:
        """The means [q, T] and their sampling variances [q, T]: within-variance / count."""
        return self.mean.T, (self.column_variances / self.count[:, None]).T

    def rows_kept(self) -> tuple[Numbers, Numbers]:
        """[m, q] all kept rows, and [m] the deployment that each is from."""
        if self.sample is None or np.all(np.isnan(self.sample)):
            raise ValueError(f"{self.name}: this log keeps no rows; losses other than the squared loss need sample=.")
        real = ~np.any(np.isnan(self.sample), axis=2)
        return self.sample[real], np.nonzero(real)[0]


def with_covariances(log: ClientLog, label: int = -1) -> ClientLog:
    """Add a column cov(x_j, label) for each feature, to detect a response that leaves all means unchanged.

        Var(cov_jk) ~ (s_jj s_kk + s_jk^2) / (count - 1),      exact for normal rows

    An example is y = (slope - sensitivity * theta) . x + noise with E x = 0. The tests do not need correlations between
    the added columns and the old ones, which are left at 0. Kept rows (`sample`) are dropped.
    """
    q = log.mean.shape[1]
    label = label % q
    features = [j for j in range(q) if j != label]
    if not features:
        raise ValueError("with_covariances needs a feature besides the label; got one column.")
    s = log.column_variances
    cross = log.cov[:, features, label]
    within = (s[:, features] * s[:, [label]] + cross**2) * (log.count / (log.count - 1))[:, None]
    cov = np.zeros((log.deployments, q + len(features), q + len(features)))
    cov[:, :q, :q] = log.cov
    cov[:, range(q, q + len(features)), range(q, q + len(features))] = within
    names = (*log.columns, *(f"cov({log.columns[j]}, {log.columns[label]})" for j in features))
    return ClientLog(
        log.theta, log.time, log.count, np.hstack([log.mean, cross]), cov, None, names, log.parameters, log.name
    )
