"""The README's picture: `python docs/_ext/readme_picture.py` redraws docs/assets/retraining.svg, byte for byte."""

import io
from pathlib import Path

import numpy as np

import performative as pf

FILE = Path(__file__).parents[1] / "assets" / "retraining.svg"
_INK, _LINE, _RETRAIN, _BEST = "#6b7280", "#64748b", "#d97706", "#059669"


def problem() -> pf.Problem:
    """The README's three clients."""
    people = pf.populations.Gaussian(mean=[0.0, 1.0, 2.0], sensitivity=[0.2, 0.5, 0.8], scale=1.0)
    return pf.Problem(pf.losses.squared, people)


def performative_risk(theta: np.ndarray) -> np.ndarray:
    """E |theta - z|^2 / 2 with z ~ N(m_i + eps_i theta, 1), averaged over clients."""
    mean, eps = np.array([0.0, 1.0, 2.0]), np.array([0.2, 0.5, 0.8])
    away = theta[:, None] - mean - eps * theta[:, None]
    return 0.5 * np.mean(away**2 + 1.0, axis=1)


def draw() -> str:
    """The picture as SVG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    made = problem()
    stable, optimal = float(pf.stable_point(made)), float(pf.optimal_point(made))
    path = np.asarray(pf.repeated_risk_minimization(made, theta=-0.9, deployments=6)).reshape(-1)
    style = {"svg.fonttype": "none", "svg.hashsalt": "performative", "font.family": "sans-serif", "font.size": 11}
    with plt.rc_context(style):
        figure, ax = plt.subplots(figsize=(7.2, 3.2))
        theta = np.linspace(-1.1, 3.1, 120)
        ax.plot(theta, performative_risk(theta), color=_LINE, linewidth=1.5)
        risks = performative_risk(path)
        for a, b, fa, fb in zip(path, path[1:], risks, risks[1:], strict=False):
            curve = {"arrowstyle": "->", "color": _RETRAIN, "connectionstyle": "arc3,rad=-0.35", "linewidth": 1.4}
            ax.annotate("", (b, fb), (a, fa), arrowprops=curve)
        ax.plot(path, risks, "o", color=_RETRAIN, markersize=4)
        for x, color, name in ((stable, _RETRAIN, "stable"), (optimal, _BEST, "optimal")):
            y = performative_risk(np.array([x]))[0]
            ax.plot([x], [y], "o", color=color, markersize=9)
            ax.annotate(f"{name} point", (x, y), (x, y - 0.17), ha="center", color=color)
        ax.annotate("retraining", (path[0], risks[0]), (path[0] + 0.25, risks[0] + 0.12), color=_RETRAIN)
        ax.set(xlabel="deployed model", ylabel="risk once people have responded", ylim=(0.9, 2.3))
        ax.set_xticks([])
        ax.set_yticks([])
        for side in ("top", "right"):
            ax.spines[side].set_visible(False)
        for side in ("bottom", "left"):
            ax.spines[side].set_color(_INK)
        ax.xaxis.label.set_color(_INK)
        ax.yaxis.label.set_color(_INK)
        figure.tight_layout()
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        plt.close(figure)
    return buffer.getvalue()


if __name__ == "__main__":
    FILE.write_text(draw(), encoding="utf-8")
