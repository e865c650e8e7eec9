"""Signs and words of the formulas in docstrings."""

import re
from dataclasses import dataclass

GREEK = {name: rf"\{name}" for name in (
    "alpha", "beta", "gamma", "delta", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu", "xi", "pi", "rho",
    "sigma", "tau", "chi", "psi", "omega",
    "Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Phi", "Psi", "Omega",
)} | {"phi": r"\varphi", "eps": r"\varepsilon", "epsilon": r"\varepsilon", "lam": r"\lambda"}  # fmt: skip
ACCENTS = ("bar", "hat", "tilde")
LIMITS = {"sum": r"\sum", "prod": r"\prod", "max": r"\max", "min": r"\min", "sup": r"\sup"}
FUNCTIONS = {name: rf"\{name}" for name in ("exp", "log", "sin", "cos")} | {
    name: rf"\operatorname{{{name}}}"
    for name in ("argmin", "argmax", "tr", "diag", "pinv", "sigmoid", "clamp", "Var", "Cov", "Re")
}
SIGNS = {
    "<=": r"\le", ">=": r"\ge", "->": r"\to", "<-": r"\leftarrow", "~": r"\sim", "=": "=", "<": "<", ">": ">",
    "||": r"\,\|\,", "-+": r"\mp", "+": "+", "-": "-", "/": "/",
}  # fmt: skip
RELATIONS = ("<=", ">=", "->", "<-", "~", "=", "<", ">")
CONNECTIVES = frozenset((
    "a", "an", "and", "at", "by", "else", "every", "for", "from", "if", "iff", "in", "is", "of", "on", "or", "over",
    "the", "then", "to", "where", "with",
))  # fmt: skip
_TOKEN = re.compile(
    r"""(?P<gap>[ ]+)
      | (?P<code>`[^`]+`|\w+="[^"]*"|"[^"]*")
      | (?P<place>(?:Theorem|Scheme|Lemma|Corollary|Proposition|Section|Example)s?\ (?:\d+(?:\.\d+)?|I+)\b)
      | (?P<number>\d+(?:\.\d+)?)
      | (?P<dots>\.\.\.?)
      | (?P<ordinal>[a-zA-Z]-th\b)
      | (?P<possessive>(?<=\w)'s(?=[ ,;:)]|$))
      | (?P<differential>\bd(?:theta|phi|[a-z])(?=/)|(?<=/)d(?:theta|phi|[a-z])\b(?!_))
      | (?P<hyphenated>[A-Za-z]{2,}(?:-(?!hat\b)[A-Za-z]{2,})+)
      | (?P<name>[A-Za-z]+\d*)
      | (?P<sign><=|>=|->|<-|\|\||-\+|[=<>~+\-*/])
      | (?P<mark>[()\[\]{}|,;:.#_^'])""",
    re.VERBOSE,
)


class Unreadable(ValueError):
    """A formula with no reading, or with two."""


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    spaced: bool  # a gap stands before it


def tokens(formula: str) -> list[Token]:
    found, at, spaced = [], 0, False
    while at < len(formula):
        match = _TOKEN.match(formula, at)
        if match is None:
            raise Unreadable(f"{formula[at]!r} in {formula!r}")
        if match.lastgroup == "gap":
            spaced = True
        else:
            found.append(Token(str(match.lastgroup), match[0], spaced))
            spaced = False
        at = match.end()
    return found


def is_word(name: str) -> bool:
    """Whether a name is set upright: neither a single letter nor a Greek one."""
    return name.isalpha() and len(name) > 1 and name not in GREEK
