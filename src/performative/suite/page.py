"""The leaderboard page: what wins where in words, ranks, curves against deployments, and every number."""

from collections.abc import Mapping, Sequence
from html import escape

from performative.report.figure import Mark, Series, View
from performative.report.interactive import Plots, card, facts, page, sortable
from performative.suite.front import SHARES, curve, front
from performative.suite.methods import METHODS
from performative.suite.pairs import two_digits
from performative.suite.protocol import BASELINES, FLOOR, Result
from performative.suite.published import Published
from performative.suite.ranking import Board, mean_score, rank
from performative.suite.registry import card as card_of
from performative.suite.registry import family_of, ids
from performative.suite.verdicts import Verdict, verdicts

# Curves shown initially; more would clutter the plot.
_CURVES = 8
_WHOLE = "white-space:nowrap"
Cells = Mapping[tuple[str, str], Result]


def leaderboard_page(published: Published, title: str | None = None) -> bytes:
    """Render one self-contained HTML file."""
    results = published.results
    board, found, plots = rank(results), verdicts(results), Plots()
    cells = {(one.env, one.method): one for one in results}
    methods = [one.method for one in board.standings]
    lead = (
        f"{len(methods)} methods in {len(board.envs)} environments, {published.seeds} seeds each. A score is the "
        "fraction of the gap between the model that is never retrained (0) and the oracle (1) that a method closes "
        "within the budget."
    )
    body = "\n".join(
        part
        for part in (
            _winners(found, board),
            card("Ranks and scores", plots.add(_ranks(board), "Methods by mean rank and by score", pick="Show")),
            card("Scores against deployments", plots.add(
                _against(board, cells, methods), "Mean scores after part of the deployments", pick="In",
                caption="Settings were tuned for the end of the budget. Lines: the best final scores.",
            )),
            card("Pareto fronts", plots.add(
                [_front(env, [cells[env, m] for m in methods]) for env in board.envs],
                "Methods that no other beats with as few deployments", pick="In",
            )),
            card("The leaderboard", _standings(board)),
            card("Every environment", _grid(board, cells, methods)),
            card("How the results were obtained", facts(_made(published, board))),
        )
        if part
    )  # fmt: skip
    return page(title or "Leaderboard of the suite", lead, body, plots, f"performative {published.version}.")


def _code(words: str) -> str:
    """Text with `names` set as code."""
    parts = escape(words).split("`")
    return "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))


def _winners(found: Sequence[Verdict], board: Board) -> str:
    top = board.standings[0]
    tied = [one.method for one in board.standings[1:] if one.rank - top.rank < board.difference]
    first = f"Best mean rank: {top.method} ({top.rank:.1f})"
    rest = (
        f"Differences in mean rank below {board.difference:.1f} are not significant at 5%: this applies to "
        f"{len(tied)} of the {len(board.standings) - 1} other methods."
    )
    rows = "\n".join(
        f"<tr><td>{escape('all environments' if one.family == 'all' else one.family)}</td>"
        f'<td data-value="{len(one.envs)}">{len(one.envs)}</td><td class="left">{_code(one.words)}</td></tr>'
        for one in found
    )
    table = sortable(("family", "environments", "what wins, and why"), [rows])
    return card("What wins where", f'<p class="answer">{escape(first)}</p><p>{escape(rest)}</p>', table)


def _ranks(board: Board) -> list[View]:
    names = [one.method for one in board.standings]
    at, half = list(range(len(names))), board.difference / 2
    ranks = [one.rank for one in board.standings]
    behind = [one.behind for one in board.standings]
    scores = [one.score for one in board.standings]
    bars = [
        Series("mean rank", ranks, at=at, low=[x - half for x in ranks], high=[x + half for x in ranks]),
        Series("score", [x.mean for x in scores], at=at, low=[x.low for x in scores], high=[x.high for x in scores]),
        Series("behind", [x.mean for x in behind], at=at, low=[x.low for x in behind], high=[x.high for x in behind]),
    ]
    labels = (
        "mean rank; bars that do not overlap differ significantly",
        "mean score, 95% over environments",
        f"score behind {names[0]}, paired by seed, 95% over seeds",
    )
    views = [
        View(label.split(";")[0].split(",")[0], "", label, [one], kind="rows", rows=names, linear=True)
        for label, one in zip(labels, bars, strict=True)
    ]
    failed = Series("diverged", [one.failures for one in board.standings], at=at)
    harmed = Series("harms", [one.harms for one in board.standings], at=at)
    views.append(View("runs that diverged", "", "runs that diverged", [failed], kind="bars", rows=names, linear=True))
    told = "environments in which it ends below never retraining"
    return [*views, View(told, "", told, [harmed], kind="bars", rows=names, linear=True)]


def _against(board: Board, cells: Cells, methods: Sequence[str]) -> list[View]:
    families = sorted({family_of(env) for env in board.envs})
    groups = {"all environments": board.envs, **{f: [e for e in board.envs if family_of(e) == f] for f in families}}
    return [_curves(name, envs, cells, methods) for name, envs in groups.items()]


def _curves(name: str, envs: Sequence[str], cells: Cells, methods: Sequence[str]) -> View:
    budgets = [int(cells[env, "stable"].facts["deployments"]) for env in envs]
    lines = {method: curve([cells[env, method] for env in envs], budgets) for method in methods}
    shown = sorted(lines, key=lambda method: -lines[method][-1])[:_CURVES]
    series = [Series(method, lines[method], SHARES, dotted=True) for method in shown]
    marks = [Mark("never retrained", 0.0), Mark("oracle", 1.0)]
    return View(name, "share of the deployments", "mean score", series, log="x", marks=marks)


def _front(env: str, results: Sequence[Result]) -> View:
    points = front(results)
    line = Series(
        "front", [score for _, _, score in points], [count for count, _, _ in points], joined=True, quiet=True
    )
    named = dict.fromkeys(method for _, method, _ in points)
    dots = [
        Series(
            method, [score for _, name, score in points if name == method],
            [count for count, name, _ in points if name == method],
        )
        for method in named
    ]  # fmt: skip
    return View(env, "deployments", "score", [line, *dots], kind="points", log="x", marks=[Mark("oracle", 1.0)])


def _standings(board: Board) -> str:
    rows = []
    for one in board.standings:
        method = METHODS.get(one.method)
        told = f"{method.words}; {method.aim}" if method else "submitted"
        cells = [f"<td><code>{escape(one.method)}</code><small>{escape(told)}</small></td>"]
        cells.append(f'<td data-value="{one.rank!r}">{one.rank:.1f}</td>')
        for part in (one.score, one.behind):
            mean, ends = str(part).split(" (")
            cells.append(f'<td data-value="{part.mean!r}">{mean}<small style="{_WHOLE}">{ends[:-1]}</small></td>')
        for count in (one.wins, one.front, one.harms):
            cells.append(f'<td data-value="{count}">{count}</td>')
        cells.append(f'<td data-value="{one.failures}">{one.failures}<small>of {one.runs}</small></td>')
        rows.append(f'<tr>{"".join(cells)}<td data-value="{one.absent}">{one.absent}</td></tr>')
    head = ("method", "mean rank", "score", "behind the first", "best in", "on the front in", "harms in", "diverged")
    return sortable(
        (*head, "does not apply in"), rows,
        "Below scores: 95% intervals over environments; below differences from the first: paired, over seeds.",
    )  # fmt: skip


def _grid(board: Board, cells: Cells, methods: Sequence[str]) -> str:
    rows = []
    for env in (*board.envs, *board.unused):
        about = escape(card_of(env) if env in ids() else "", quote=True)
        line = [f'<td style="{_WHOLE}" title="{about}">{escape(env)}<small>{escape(family_of(env))}</small></td>']
        best = max(mean_score(cells[env, method]) for method in methods)
        stable = cells.get((env, "stable"))
        line.append(_cell(stable, best) if stable else "<td></td>")
        line += [_cell(cells[env, method], best) for method in methods]
        rows.append(f"<tr>{''.join(line)}</tr>")
    said = (
        "Mean scores over seeds, floored at -1 in each run; ✗ and a number: runs that diverged. Hover over a cell for "
        "the tuned setting, or for why a method does not apply."
    )
    return sortable(("environment", "stable point", *methods), rows, said)


def _cell(result: Result, best: float) -> str:
    if result.why is not None:
        return f'<td data-value="0" title="{escape(result.why, quote=True)}">n/a</td>'
    score = mean_score(result)
    good = min(max((score - FLOOR) / (1.0 - FLOOR), 0.0), 1.0)
    color = f"color-mix(in srgb, var(--good) {round(max(score, 0.0) * 45)}%, transparent)"
    if score < 0:
        color = f"color-mix(in srgb, var(--bad) {round((0.5 - good) * 90)}%, transparent)"
    broken = f"<small>✗ {result.failures}</small>" if result.failures else ""
    wins = score >= best - 1e-9 and result.method not in BASELINES
    shown = f"<b>{two_digits(score)}</b>" if wins else two_digits(score)
    tuned = ", ".join(f"{name} {value:g}" for name, value in result.tuned.items())
    return f'<td data-value="{score!r}" style="background:{color}" title="{escape(tuned)}">{shown}{broken}</td>'


def _made(published: Published, board: Board) -> list[tuple[str, object]]:
    cells = len([one for one in published.results if one.method not in BASELINES])
    return [
        ("entries", cells),
        ("seeds", published.seeds),
        ("tuning", "three rates, on other seeds" if published.quick else "the whole grid, on other seeds"),
        ("CPU time", f"{published.minutes:.0f} minutes"),
        ("Friedman test of equal ranks", f"p = {board.chance:.2g}"),
        ("no method applies in", ", ".join(board.unused)),
    ]
