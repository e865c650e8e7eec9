"""Formulas in labels: `$\\theta_{PS}$` as matplotlib reads it, and as HTML for the browser."""

import re

# A lone dollar sign is money. A formula has no space inside its delimiters, and is one letter or has a math character.
_FORMULA = re.compile(r"(\$(?! )(?:[^$]*[\\_^|][^$]*|[A-Za-z])(?<! )\$)")
_SIGNS = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "Delta": "Δ", "epsilon": "ε", "varepsilon": "ε",
    "eta": "η", "theta": "θ", "kappa": "κ", "lambda": "λ", "mu": "μ", "rho": "ρ", "sigma": "σ", "tau": "τ",
    "varphi": "φ", "phi": "φ", "Phi": "Φ", "nabla": "∇", "infty": "∞", "leq": "≤", "geq": "≥", "cdot": "·",
    "times": "×", "sum": "Σ", "sqrt": "√", "ell": "ℓ", "approx": "≈", "sim": "∼", "Vert": "‖", "|": "‖",
}  # fmt: skip
_ACCENTS = {"bar": "\u0304", "hat": "\u0302", "tilde": "\u0303"}


def for_matplotlib(text: str) -> str:
    """The text with its formulas; other dollar signs are escaped so they do not start one."""
    parts = _FORMULA.split(text)
    return "".join(part if i % 2 else part.replace("$", r"\$") for i, part in enumerate(parts))


def for_browser(text: str) -> str:
    """The text with its formulas as Unicode letters and HTML tags."""
    parts = _FORMULA.split(text)
    return "".join(_tagged(part[1:-1]) if i % 2 else part for i, part in enumerate(parts))


def _tagged(formula: str) -> str:
    for name, sign in _ACCENTS.items():
        formula = re.sub(rf"\\{name}(?:\{{(\\?\w+)\}}| *(\\[A-Za-z]+|\w))", rf"\g<1>\g<2>{sign}", formula)
    formula = re.sub(r"\\(?:mathrm|mathcal|mathbb|text|mathbf|operatorname)\{([^{}]*)\}", r"\1", formula)
    formula = re.sub(r"\\frac\{([^{}]*)\}\{([^{}]*)\}", r"\1/\2", formula)
    formula = re.sub(r"\\([A-Za-z]+|\|)(?: (?=[\w\\(]))?", lambda found: _SIGNS.get(found[1], found[1]), formula)
    formula = re.sub(r"_(?:\{([^{}]*)\}|(\w))", r"<sub>\1\2</sub>", formula)
    formula = re.sub(r"\^(?:\{([^{}]*)\}|(\w))", r"<sup>\1\2</sup>", formula)
    return formula.replace("{", "").replace("}", "").replace("\\", "")
