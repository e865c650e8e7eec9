"""Which function holds which numbered result of which paper.

    for row in THEOREMS: row.paper, row.number, row.function, row.says

Papers by number: 000 Jin et al. 2024 (P-FedAvg), 003 its 2023 preprint, 001 Zheng et al. 2024 (PROFL),
002 Li, Yemini and Wai 2024 (PCSGD, DiceSGD), 004 Joshi's slides (no numbers: named by what is on the slide).
"""

import dataclasses
import functools
import importlib
from typing import Any

_HERE = "performative.theory"


@dataclasses.dataclass(frozen=True)
class Numbered:
    """One result. where: "module:name", or "module:Class.name"; says: what it bounds, in one line."""

    paper: str
    number: str
    where: str
    says: str

    @property
    def function(self) -> Any:
        """The function itself. Imported when asked for, since one of them lives outside of `theory`."""
        module, name = self.where.split(":")
        return functools.reduce(getattr, name.split("."), importlib.import_module(module))


def _rows(paper: str, module: str, *rows: tuple[str, str, str]) -> tuple[Numbered, ...]:
    home = module if "." in module else f"{_HERE}.{module}"
    return tuple(Numbered(paper, number, f"{home}:{name}", says) for number, name, says in rows)


P_FEDAVG: tuple[Numbered, ...] = (
    *_rows(
        "000",
        "stability",
        ("Proposition 2.8", "proposition_2_8", "retraining contracts by eps_bar L / mu"),
        ("Proposition 2.9", "proposition_2_9", "distance of theta_PS and theta_PO"),
    ),
    *_rows(
        "000",
        "p_fedavg",
        ("Theorem 3.1", "theorem_3_1", "E |theta_t - theta_PS|^2, all clients"),
        ("Theorem 3.2", "theorem_3_2", "E |theta_t - theta_PS|^2, Scheme I"),
        ("Theorem 3.3", "theorem_3_3", "E |theta_t - theta_PS|^2, Scheme II"),
    ),
    *_rows(
        "000",
        "time_to_accuracy",
        ("Section 3.3, T_eps", "steps_to_accuracy", "local steps until the bound is below eps"),
        ("Section 3.3, time", "total_time", "T + C T / E"),
    ),
    *_rows(
        "003",
        "p_fedavg_appendix",
        ("Theorem B.4", "theorem_b_4", "Theorem 3.1 with any beta / (t + gamma)"),
        ("Theorem C.5", "theorem_c_5", "Theorems 3.2 and 3.3 with any beta / (t + gamma)"),
        ("Theorem D.5", "theorem_d_5", "bounded gradients, all clients"),
        ("Theorem D.8", "theorem_d_8", "bounded gradients, Schemes I and II"),
    ),
)

PROFL: tuple[Numbered, ...] = (
    *_rows("001", "profl_constants", ("Lemma 5.6", "lemma_5_6", "F, M, G and l_max of a problem on boxes")),
    *_rows(
        "001",
        "profl_lemmas",
        ("Lemma 5.7", "lemma_5_7", "error of the estimated df/dtheta"),
        ("Lemma 5.8", "lemma_5_8", "error of the first term of the performative gradient"),
        ("Lemma 5.9", "lemma_5_9", "error of its second term, for data and for outliers"),
        ("Lemma C.1", "lemma_c_1", "how far clients drift apart in R local steps"),
        ("Lemma C.2", "lemma_c_2", "error of the whole performative gradient under contamination"),
    ),
    *_rows(
        "001",
        "profl",
        ("Theorem 5.10", "theorem_5_10", "E L(theta_t) - L(theta_PO)"),
        ("Corollary 5.11", "corollary_5_11", "the same without contamination, and when there is no floor"),
    ),
    *_rows("001", "profl_constants", ("Lemma C.3", "mixture_sensitivity", "sensitivity of a mixture of two groups")),
    *_rows("001", "profl_size", ("Section 5.3, n", "sample_size", "samples that an allowed error asks for")),
)

CLIPPED: tuple[Numbered, ...] = (
    *_rows("002", "clipped", ("Theorem 3.4", "pcsgd", "E |theta_t - theta_PS|^2 of PCSGD")),
    *_rows(
        "002", "clipped_quadratic", ("Theorem 3.5", "ClippedQuadratic.squared_bias", "the bias that no step removes")
    ),
    *_rows(
        "002",
        "performative.privacy",
        ("Corollary 3.6", "corollary_3_6_as_printed", "noise for (eps, delta), with the eps that it really gives"),
    ),
    *_rows(
        "002",
        "clipped_tuning",
        ("Corollary 3.7", "optimal_step", "the constant step that minimises the bound"),
        ("Corollary 3.8", "optimal_clip_limit", "the clip that minimises the bound as T grows"),
    ),
    *_rows("002", "dice", ("Theorem 4.3", "dicesgd", "E |theta_t - gamma_t e_t - theta_PS|^2 of DiceSGD")),
    *_rows(
        "002",
        "clipped",
        ("Lemma 5.1", "one_step", "one step of PCSGD"),
        ("Lemma 5.2", "clip_pull", "what clipping adds to a step"),
        ("Lemma A.1", "unmet_steps", "what is asked of the steps"),
        ("Lemma A.2", "gradient_change", "change of grad f with model and world"),
    ),
)

HETEROGENEITY: tuple[Numbered, ...] = (
    *_rows(
        "004",
        "heterogeneity",
        ("client drift; partial participation", "fedavg", "mean E |grad F|^2 of FedAvg, four terms, with constants"),
        ("tuned step", "tuned_orders", "orders of noise, participation and drift; constants hidden"),
        ("FedVARP", "fedvarp", "the same without participation; constants hidden"),
        ("FedExP", "extrapolation", "the server step, and what it guarantees"),
    ),
    *_rows(
        "004",
        "selection",
        ("selection skew", "biased_selection", "E |x_t - x*|^2 under any choice of clients"),
        ("selection skew, bias", "selection_floor", "F(x_inf) - min F <= Gamma (rho_tilde / rho_bar - 1)"),
        ("selection skew, orders", "selection_orders", "what stands in the slide's O(.)"),
        ("cyclic participation", "cyclic_orders", "orders of F(x_T) - min F; constants hidden"),
        ("mismatched objective", "objective_weights", "weights of the objective that FedAvg minimises"),
        ("FedNova, tau_eff", "effective_steps", "sum p_i tau_i"),
        ("mismatched objective, bound", "inconsistency", "|grad F|^2 where FedAvg settles"),
    ),
    *_rows(
        "004",
        "quadratic_points",
        ("exact: FedAvg", "quadratic_floor", "where FedAvg settles, and its variance for small steps"),
        ("exact: unequal work", "settled_point", "where FedAvg and FedNova settle"),
        ("exact: cyclic", "cycle_point", "where a cycle of groups settles"),
    ),
)

THEOREMS: tuple[Numbered, ...] = (*P_FEDAVG, *PROFL, *CLIPPED, *HETEROGENEITY)
