"""The audit as one HTML file, without scripts or with plots to play with."""

from html import escape

from performative._version import __version__
from performative.audit import cells, formats
from performative.audit.audit_report import AuditReport
from performative.audit.client_report import ClientReport
from performative.audit.drift import DRIFTS
from performative.audit.figures import MOST_CLIENTS, pictures, w1_slope
from performative.audit.rates import GroupRates, Rate
from performative.audit.words import WORDS
from performative.findings import part
from performative.report import interactive
from performative.report.drawing import svg
from performative.report.html import document, picture, table
from performative.report.interactive import Plots
from performative.report.telling import alerts, paragraphs

_TITLE = "What the logs say"
_MOST_DIRECTIONS = 40
Row = list[tuple[str, str] | str]


def page(report: AuditReport) -> bytes:
    """Questions with their answers and pictures, every client, the groups, what to do, and what was assumed."""
    drawn = {name: picture(svg(one), svg(one, dark=True), one.description) for name, one in pictures(report).items()}
    top = f'<h1>{_TITLE}</h1>\n<p class="lead">{escape(_lead(report))}</p>'
    body = f"{top}\n{_body(report, drawn)}\n<footer>{_made(report)}; all numbers are in audit.json.</footer>"
    return document(_title(report), _joined(body))


def interactive_page(report: AuditReport, title: str | None = None) -> bytes:
    """The same with plots to play with, as `performative.report.write` writes it."""
    plots = Plots()
    drawn = {name: plots.add([one], one.description) for name, one in pictures(report).items()}
    body = _body(report, drawn)
    footer = f"{_made(report)}; `performative audit` writes all numbers as JSON."
    return interactive.page(title or _title(report), _lead(report), _joined(body), plots, footer)


def _title(report: AuditReport) -> str:
    return f"{_TITLE}: {report.logs.folder.name}"


def _lead(report: AuditReport) -> str:
    read = report.logs
    return (
        f"{_many(len(read.deployments.names), 'deployment')}, {_many(len(report.clients), 'client')}, {read.used:,} "
        f"rows from {read.folder.name or read.folder}. Drift that does not depend on the model was allowed for as "
        f"{report.drift!r}; tests are at level {report.level:g}, intervals at {100 * (1 - report.level):g} %."
    )


def _made(report: AuditReport) -> str:
    return f"performative {__version__}; seed {report.seed}"


def _body(report: AuditReport, drawn: dict[str, str]) -> str:
    parts = [
        alerts(part(report.findings, "loud"), WORDS),
        _effect(report, drawn),
        _clients(report),
        _card("Which way do the data move?", _which_way(report), drawn.get("directions", "")),
        _directions(report),
        _sizes(report, drawn),
        _ahead(report, drawn),
        _next(report),
        _people(report, drawn),
        _notes(report),
    ]
    return "\n".join(part for part in parts if part)


def _joined(body: str) -> str:
    """No line break between a number and its sign."""
    for text, kept in (
        (" %", "&nbsp;%"),
        ("&lt; 0.", "&lt;&nbsp;0."),
        ("p = ", "p&nbsp;=&nbsp;"),
        ("p &lt;", "p&nbsp;&lt;"),
    ):
        body = body.replace(text, kept)
    return body


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _card(question: str, text: str, image: str = "") -> str:
    if not text and not image:
        return ""
    head = f"<h2>{escape(question)}</h2>"
    if not image:
        return f'<section class="card">{head}{text}</section>'
    return f'<section class="card split"><div>{head}{text}</div>\n{image}</section>'


def _p(text: str) -> str:
    return f"<p>{escape(text)}</p>" if text else ""


def _answer(text: str) -> str:
    return f'<p class="answer">{escape(text)}</p>'


def _effect(report: AuditReport, drawn: dict[str, str]) -> str:
    answer = {True: "Yes", False: "Not that we can see", None: "Cannot be told"}[report.effect]
    if report.hedged:
        answer = "It looks so, but drift may do the same"
    elif report.effect is None and any(one.reacts is not None for one in report.clients):
        answer = "Not in the features; of the label it cannot be told"
    said = _answer(answer) + _p(report.verdict)
    if report.pooled is not None:
        said += _p(
            f"All together ({report.pooled.who}, weighted mean): {formats.chance(report.pooled.effect.p_value)}. "
            "The test asks whether the data follow the models beyond any drift of the kind allowed for."
        )
    if len(report.clients) > MOST_CLIENTS:
        said += _p(f"The pictures show the {MOST_CLIENTS} clients with the largest weights, the tables all.")
    return _card("Do the data react to the model?", said, drawn.get("effect", ""))


def _clients(report: AuditReport) -> str:
    rows: list[Row] = []
    for one in report.clients:
        mark = {True: "reacts", False: "no reaction found", None: "cannot tell"}[one.reacts]
        p: list[tuple[str, str] | str] = [
            formats.chance(one.by_drift[kind].p_value).removeprefix("p = ").removeprefix("p ")
            if one.by_drift[kind].identified
            else "–"
            for kind in DRIFTS
        ]
        rows.append([(one.name, f"{mark}; {one.rows:,} rows"), *p])
    grid = table(("client", *(f"p, drift {kind}" for kind in DRIFTS)), rows)
    details = "".join(f"<p><b>{escape(name)}.</b> {escape(said)}</p>" for name, said in report.client_verdicts.items())
    if len(report.clients) > MOST_CLIENTS:
        details = f"<details><summary>Each client in words</summary>{details}</details>"
    small = "<p><small>p-values of one client by itself; whether it reacts counts all tests made (Holm).</small></p>"
    return f'<section class="card"><h2>Client by client</h2>{grid}{small}{details}</section>'


def _which_way(report: AuditReport) -> str:
    found = part(report.findings, "reacts")
    if not found or found[0].code == "moves.together":
        return _p(WORDS.tell(found) or "No direction stands out.")
    first = found[0]
    name = f"{first.data['client']}: " if len(report.clients) > 1 else ""
    said = _answer(name + WORDS.say(first))
    several = any(one.name == first.data["client"] and one.least_squares is not None for one in report.clients)
    said += _p(
        "Filled: an interval excludes 0. "
        + (
            "Thin lines hold however the models were trained; thick ones are least squares, right where models were "
            "chosen by hand or explored at random, and a little too narrow where they were only ever retrained."
            if several
            else "Lines are intervals that hold however the models were trained."
        )
    )
    if first.data["method"] == "least squares":
        said += _p("This one is told by least squares only.")
    return said


def _directions(report: AuditReport) -> str:
    rows = cells.direction_rows(report, _MOST_DIRECTIONS)
    if not rows:
        return ""
    made: list[Row] = [[(column, client), parameter, (slope, f"{sd} sd"), narrow, wide]
                       for client, column, parameter, slope, sd, narrow, wide in rows]  # fmt: skip
    grid = table(("what moves", "per unit of", "by", "least squares", "for any training"), made)
    return f'<section class="card"><h2>By how much</h2>{grid}</section>'


def _sizes(report: AuditReport, drawn: dict[str, str]) -> str:
    rows: list[Row] = []
    for one in report.clients[:]:
        if one.response.identified:
            rows.append([one.name, *_size_cells(one)])
    if not rows:
        return ""
    grid = table(("client", "sensitivity", "least squares", "slope of W₁", "seen with 90 % power"), rows)
    images = "\n".join(drawn[name] for name in ("sensitivity", "distances") if name in drawn)
    small = (
        "<p><small>Sensitivity: how far the means move per unit of the model, at most over directions; bootstrap "
        "intervals. W₁: Wasserstein distance of the rows, above what sampling alone gives; drift is not taken out of "
        "it. Last: the smallest response that would have been seen, in standard deviations per unit of a parameter."
        "</small></p>"
    )
    pair = f'<div class="split">{images}</div>' if images else ""
    question = "How strongly?" if report.effect else "How strong could a reaction be?"
    return f'<section class="card"><h2>{question}</h2>{pair}{grid}{small}</section>'


def _size_cells(one: ClientReport) -> list[tuple[str, str] | str]:
    def with_limits(found: object) -> tuple[str, str]:
        value, low, high = (getattr(found, f"sensitivity{end}") for end in ("", "_lower", "_upper"))
        return formats.number(value), f"{formats.number(low)} to {formats.number(high)}"

    usual = "–" if one.least_squares is None else with_limits(one.least_squares)
    slope = "–" if w1_slope(one) is None else formats.number(w1_slope(one))
    finite = one.detectable[one.detectable < float("inf")]
    power = f"{formats.number(finite.min())} to {formats.number(finite.max())}" if finite.size else "–"
    return [with_limits(one.response), usual, slope, power]


def _ahead(report: AuditReport, drawn: dict[str, str]) -> str:
    question, found = "Where does retraining lead?", report.prospect.outlook
    said = paragraphs(part(report.findings, "outlook"), WORDS)
    if found is None:
        return _card(question, said, drawn.get("models", ""))
    answer = {True: "It settles", False: "It does not settle", None: "Cannot be told for certain"}[found.settles]
    if found.stable is None:
        answer = "Nowhere: there is no stable point"
    card = _card(question, _answer(answer) + said, drawn.get("models", ""))
    facts = table(("outlook", ""), [[name, value] for name, value in cells.outlook_facts(report)])
    points = table(("parameter", "now", "stable point", "optimum"), [list(row) for row in cells.outlook_rows(report)])
    driven = drawn.get("drivers", "")
    lines = table(
        ("client", "share", "factor without its reaction"),
        [[line.name, formats.percent(line.share), formats.number(line.without)] for line in report.prospect.drivers],
    )
    more = _card("Who drives it?", lines, driven) if len(report.prospect.drivers) > 1 else ""
    return f'{card}\n<section class="card"><h2>The points</h2>{facts}{points}</section>\n{more}'


def _next(report: AuditReport) -> str:
    advice = report.advice
    said = _answer(advice.title) + paragraphs(advice.why, WORDS)
    if advice.code:
        said += f"<pre>{escape(advice.code)}</pre>"
    if advice.otherwise:
        said += _p(advice.otherwise[0]) + f"<pre>{escape(advice.otherwise[1])}</pre>"
    return _card("What to do next?", said + paragraphs(advice.robust, WORDS))


def _people(report: AuditReport, drawn: dict[str, str]) -> str:
    groups = report.groups
    if groups is None:
        return ""
    said = paragraphs(part(report.findings, "people"), WORDS)
    question = "Who gains, who pays?" if groups.reaction else "How did groups fare over time?"
    card = _card(question, said, drawn.get("groups", ""))
    after = {rates.group: rates for rates in groups.after}
    rows: list[Row] = []
    for rates in groups.before:
        later = after.get(rates.group)
        cells = [
            _change(_of(rates, name), _of(later, name), _bounds(later, name)) for name in ("acceptance", "tpr", "tnr")
        ]
        rows.append([(rates.group, f"{rates.count:,} people before"), *cells])
    grid = table(("group", "accepted, before → after", "TPR", "TNR"), rows)
    where = f"<p><small>Before: {escape(groups.before_is)}. After: {escape(groups.after_is)}.</small></p>"
    if groups.burden:
        costs: list[Row] = [
            [
                (one.group, f"{one.people:,} qualified"),
                (formats.number(one.value), formats.span(one.low, one.high)),
                f"{one.already:,}",
                f"{one.unreachable:,}",
            ]
            for one in groups.burden
        ]
        grid += table(("group", "burden", "pay nothing", "cannot get there"), costs)
        cost = f"Burden: least cost of being accepted, mean over the qualified; {groups.cost}."
        where += f"<p><small>{escape(cost)}</small></p>"
    if groups.improvement:
        change: list[Row] = [
            [one.group, *(_triple(getattr(one, name)) for name in ("expected", "observed", "shortfall")), one.verdict]
            for one in groups.improvement
        ]
        grid += table(("group", "change promised", "came", "shortfall", "verdict"), change)
    where += f"<p><small>{escape(groups.assumption)}</small></p>"
    path = drawn.get("acceptance", "")
    said = _p("As logged, each deployment under its own model. Bands are intervals for the group's rate.")
    over_time = _card("Acceptance over time", said, path) if path else ""
    return f'{card}\n<section class="card"><h2>Groups before and after</h2>{grid}{where}</section>\n{over_time}'


def _of(rates: GroupRates | None, name: str) -> Rate | None:
    found: Rate | None = None if rates is None else getattr(rates, name)
    return found


def _bounds(rates: GroupRates | None, name: str) -> str:
    if rates is None or name == "acceptance":
        return ""
    low, high = getattr(rates, f"{name}_bounds")
    return f"after: {formats.percent(low)} to {formats.percent(high)}, whatever the missing labels"


def _change(before: Rate | None, after: Rate | None, bounds: str) -> tuple[str, str] | str:
    if before is None or after is None:
        return ("not known", bounds)
    text = " → ".join(formats.percent(rate.value) for rate in (before, after)).replace(" %", "\u00a0%")
    return text, " → ".join(f"{100 * rate.low:.0f}–{100 * rate.high:.0f}" for rate in (before, after))


def _triple(values: tuple[float, float, float]) -> tuple[str, str]:
    value, low, high = (100 * v for v in values)
    return f"{value:+.1f} points", f"{low:+.1f} to {high:+.1f}"


def _notes(report: AuditReport) -> str:
    if not report.notes:
        return ""
    lines = "".join(f"<li>{escape(note)}</li>" for note in report.notes)
    return f'<section class="card"><h2>What was dropped or assumed</h2><ul>{lines}</ul></section>'
