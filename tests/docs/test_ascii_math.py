"""Equations of docstrings on the site: what is read is what is written, and what has two readings stays as it is."""

import collections
import html
import inspect
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("docutils", reason="the extra performative[docs] is not installed")
ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs" / "_ext"))

from ascii_math import Unreadable, joined, read  # noqa: E402  after the path
from docutils.core import publish_string  # noqa: E402  after the path
from mathml import to_mathml  # noqa: E402  after the path
from page_docstrings import as_rst, parameters  # noqa: E402  after the path
from page_equations import typeset  # noqa: E402  after the path
from page_reference import complete, entries, pages, resolve, split_example  # noqa: E402  after the path
from page_reference import read as read_page  # noqa: E402  after the path


def tex(formula: str, **settings) -> str:
    return joined(read(formula, **settings))


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("theta_i", r"\theta_{i}"),
        ("eps_bar L / mu", r"\bar{\varepsilon}\, L / \mu"),
        ("theta_{t+1} <- theta_t", r"\theta_{t + 1} \leftarrow \theta_{t}"),
        ("theta_PS", r"\theta_{\text{PS}}"),
        ("c_k_new", r"c_{k,\text{new}}"),
        ("noise_multiplier_i", r"\text{noise_multiplier}_{i}"),
        ("coupling_ij", r"\text{coupling}_{i j}"),
        ("sum_i p_i^2", r"\sum_{i}\, p_{i}^{2}"),
        ("(1 - eta slope_i)^tau_i", r"(1 - \eta\, \text{slope}_{i})^{\tau_{i}}"),
        ("H^-1", r"H^{-1}"),
        ("|u - v|", r"\left| u - v \right|"),
        ("E|delta|^2", r"\mathbb{E} \left| \delta \right|^{2}"),
        ("2E^2 - E", r"2 E^{2} - E"),
        ("x | y ~ N(0, 1)", r"x \mid y \sim \mathcal{N} (0 , 1)"),
        ("rho = | a - b | / c", r"\rho = \left| a - b \right| / c"),
        ("min_theta' f(theta')", r"\min_{\theta^{\prime}}\, f (\theta^{\prime})"),
        ("felt_ij'", r"\text{felt}_{i j}^{\prime}"),
        ("F_i*", r"F_{i}^{*}"),
        ("L(theta+) - L(theta-)", r"L (\theta^{+}) - L (\theta^{-})"),
        ("mu~ g", r"\tilde{\mu}\, g"),
        ("f-hat_k", r"\hat{f}_{k}"),
        ("loss -theta.z", "\\text{loss}\\  \\text{\u2212} \\theta \\cdot z"),
        ("eps_i * theta", r"\varepsilon_{i}\, \theta"),
        ("f(. ; theta)", r"f (\cdot ; \theta)"),
        ("dz/df = 1", r"dz / df = 1"),
        ("#{k : i_k = i}", r"\text{#}\{k :\  i_{k} = i\}"),
        ("1{y = k}", r"{\mathbf{1}}\{y = k\}"),
        ("sqrt(T log(1/delta))", r"\sqrt{T\, \log (1 / \delta)}"),
        ("floor(v/s)", r"\lfloor v / s \rfloor"),
        ("max(floor, |theta|)", r"\max (\text{floor} , \left| \theta \right|)"),
        ("sum_{i in g} a_i", r"\sum_{i \in g}\, a_{i}"),
        ("a <= b -> c", r"a \le b \to c"),
        ("theta_infinity", r"\theta_{\infty}"),
        ("q cross-fitted", r"q\  \text{cross-fitted}"),
        ("the client's t", r"\text{the}\  \text{client's}\  t"),
        ("Theorem 3.1 with Scheme I", r"\text{Theorem 3.1}\  \text{with}\  \text{Scheme I}"),
        ("a mixture", r"\text{a}\  \text{mixture}"),
    ],
)
def test_a_formula_is_read(written, shown):
    assert tex(written) == shown
    assert "<math" in to_mathml(tex(written))


@pytest.mark.parametrize(
    "written",
    [
        "(a, b", "a)", "|a", "a_", "x^", "100%", "pf.networks.mlp(1)", "T (x) T", "18,357 rows", "classes_[1]",
        "|a | b|", "theta-bias", "a_ b", "x'y", "x\\y", "é",
    ],
)  # fmt: skip
def test_what_has_no_reading_or_two_is_refused(written):
    with pytest.raises(Unreadable):
        read(written)


def test_an_article_that_is_a_parameter_too_is_refused():
    assert tex("a client") == r"\text{a}\  \text{client}"
    with pytest.raises(Unreadable):
        tex("a client", parameters=frozenset({"a"}))
    assert tex("2 a where b", parameters=frozenset({"a"})) == r"2\, a\  \text{where}\  b"


def test_an_expectation_is_told_from_a_number_of_steps():
    shown = typeset("    E x -> E[x],      n = 2")
    assert shown.count(r"\mathbb{E}") == 2
    shown = typeset("    E|x| <= 2E,      t = round E + e")
    assert shown.count(r"\mathbb{E}") == 1, "two meanings in one block: only what is certain"


def test_a_block_breaks_between_its_parts_and_keeps_its_words():
    shown = typeset("    a_i = p_i N / K   for the K drawn,      b = `cap`\n        + 1")
    page = publish_string(shown, writer="pseudoxml", settings_overrides={"halt_level": 2}).decode()
    assert page.count("<line>") == 2 and page.count("<line_block>") == 2, "the second line is indented"
    assert "for the" in page and "<literal>" in page and page.count("<math>") == 4


@pytest.mark.parametrize(
    "block",
    [
        "    fields      whole numbers are declared\n    types_stay  memory keeps its shape",
        "    theta, network = pf.networks.split(model)",
        "    x - 2 theta on all 14 columns, gamma in [0, 1] on the\n        midpoint grid, 10 clients",
        "    v = |mean| of g_",
    ],
)
def test_tables_code_and_riddles_stay_as_they_are(block):
    assert typeset(block) is None
    assert as_rst(f"Title.\n\n{block}").count("::") == 1 and ":math:" not in as_rst(f"Title.\n\n{block}")


def blocks():
    """(name, block, parameters) of what stands indented in the docstrings of the reference."""
    for page in pages():
        for path in entries(complete(read_page(page))):
            thing = resolve(path)
            if not callable(thing):
                continue
            text = split_example(inspect.getdoc(thing) or "")[0]
            for literal in re.findall(r"^::\n\n((?:    .*(?:\n|\Z))+)", as_unset(text), flags=re.MULTILINE):
                yield path, "\n".join(line[4:] for line in literal.rstrip("\n").split("\n")), parameters(thing)


def as_unset(text: str) -> str:
    """A docstring as it stands on a page without typesetting."""
    import page_docstrings

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_docstrings, "typeset", lambda *_: None)
        return as_rst(text)


# Signs as the words that they were.
LETTERS = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "η": "eta", "θ": "theta", "κ": "kappa", "λ": "lambda",
    "μ": "mu", "ν": "nu", "ξ": "xi", "π": "pi", "ρ": "rho", "σ": "sigma", "τ": "tau", "φ": "phi", "χ": "chi",
    "ω": "omega", "ε": "eps", "Γ": "Gamma", "Δ": "Delta", "Λ": "Lambda", "Φ": "Phi", "𝔼": "E", "𝒩": "N", "𝟏": "1",
    "¯": "bar", "ˆ": "hat", "~": "tilde", "∑": "sum", "∏": "prod", "∇": "grad", "∞": "infinity", "∈": "in",
    "⌊": "floor", "⌈": "ceil",
}  # fmt: skip


def letters_and_digits(text: str) -> collections.Counter:
    return collections.Counter(re.findall(r"[A-Za-z0-9]", text))


@pytest.mark.slow
def test_every_letter_of_every_block_is_shown_and_most_blocks_are_typeset():
    """In the reference: no letter or digit is lost or made up on the way to MathML."""
    told, shown = 0, 0
    for name, block, names in blocks():
        told += 1
        written = typeset(block, names)
        if written is None:
            continue
        shown += 1
        formulas = "".join(map(to_mathml, re.findall(r":math:`([^`]*)`", written)))
        words = re.sub(r":math:`[^`]*`|container:: equations", "", written)
        drawn = re.sub(r"<msqrt>", "sqrt", html.unescape(formulas))
        drawn = re.sub(r"<mo[^>]*>~</mo>(?=\s*</mover>)", "tilde", drawn)
        plain = re.sub(r"<[^>]*>", "", drawn) + words
        plain = "".join(LETTERS.get(sign, sign) for sign in plain)
        meant = re.sub(r"(?<=mu)~", "tilde", block)
        meant = re.sub(r"\blam\b", "lambda", re.sub(r"\bepsilon\b", "eps", meant))
        assert letters_and_digits(plain) == letters_and_digits(meant), f"{name}:\n{block}\n{written}"
    assert told > 150 and shown / told > 0.85, f"{shown} of {told} blocks are typeset"
    print(f"{shown} of {told} blocks are typeset")


def test_bars_keep_their_distance_and_subscripts_their_place():
    shown = re.sub(r"\s+", "", to_mathml(r"\bar{\varepsilon} < \hat{f}_k + \bar x_i"))
    assert '<mover><mi>ε</mi><mostretchy="false">¯</mo></mover>' in shown
    assert "munderover" not in shown and shown.count("<msub>") == 2 and "ˉ" not in shown
