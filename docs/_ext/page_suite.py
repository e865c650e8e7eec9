"""The leaderboard's tables, from the results that ship with the package.

<!-- generate: winners -->        which method wins in which family of environments, and why
<!-- generate: leaderboard -->    all methods, by mean rank
<!-- generate: suite -->          how many environments, methods, seeds and minutes
<!-- generate: hardest -->        environments by the best score of any method, lowest first
"""

import functools
from typing import Any

from page_reference import cell


@functools.cache
def _shipped() -> Any:
    from performative.suite.published import shipped

    return shipped()


def winners() -> str:
    """One row per family, preceded by a row for all of them."""
    from performative.suite.verdicts import verdicts

    lines = ["| environments | how many | what wins, and why |", "| --- | ---: | --- |"]
    for one in verdicts(_shipped().results):
        name = "**all**" if one.family == "all" else one.family
        lines.append(f"| {name} | {len(one.envs)} | {cell(one.words)} |")
    return "\n".join(lines)


def leaderboard() -> str:
    """One row per method."""
    from performative.suite.ranking import rank

    board = rank(_shipped().results)
    head = ["method", "mean rank", "score", "behind the first", "best in", "on the front in", "harms in", "diverged"]
    lines = [f"| {' | '.join([*head, 'does not apply in'])} |", "| --- |" + " ---: |" * len(head)]
    for one in board.standings:
        cells = [f"`{one.method}`", f"{one.rank:.1f}", one.score, one.behind, one.wins, one.front, one.harms]
        cells += [f"{one.failures} of {one.runs}", one.absent]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    told = (
        f"{len(board.envs)} environments. Mean ranks that differ by less than {board.difference:.1f} are not "
        f"significantly different (Nemenyi at 5%). Friedman test that all methods are equal: p = {board.chance:.2g}."
    )
    unused = f" No method applies in {', '.join(f'`{env}`' for env in board.unused)}." if board.unused else ""
    return "\n".join([*lines, "", told + unused])


def suite() -> str:
    """A summary of what was run."""
    found = _shipped()
    methods = {one.method for one in found.results}
    envs = {one.env for one in found.results}
    how = "three rates per method" if found.quick else "the full grid of each method"
    return (
        f"Shipped with version {found.version}: {len(methods)} methods, including reference points, in {len(envs)} "
        f"environments, {found.seeds} seeds; tuning searched {how}, on separate seeds. It took {found.minutes:.0f} "
        "minutes of CPU time."
    )


def hardest(most: str = "12") -> str:
    """Environments in which the best method leaves most of the gap open."""
    from performative.suite.protocol import BASELINES
    from performative.suite.ranking import mean_score

    best: dict[str, tuple[float, str]] = {}
    facts, stable = {}, {}
    for one in _shipped().results:
        if one.method == "stable":
            facts[one.env], stable[one.env] = one.facts, one.scores[0]
        elif one.method not in BASELINES and one.why is None:
            best[one.env] = max(best.get(one.env, (-9.0, "")), (mean_score(one), one.method))
    lines = ["| environment | best score | of | stable point | gap | contraction |", "| --- |" + " ---: |" * 5]
    for env in sorted(best, key=lambda env: best[env][0])[: int(most)]:
        gap, factor = facts[env].get("gap"), facts[env].get("contraction")
        cells = [f"`{env}`", f"{best[env][0]:.2f}", f"`{best[env][1]}`", f"{stable[env]:.2f}"]
        cells += [f"{gap:.2g}", "–" if factor is None else f"{factor:.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
