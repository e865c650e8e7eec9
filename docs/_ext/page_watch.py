"""Tables of a watch's measured error rates and load; `python -m benchmarks.watching` writes the numbers."""

import json
from pathlib import Path

FILE = Path(__file__).parents[2] / "benchmarks" / "watching.json"
_LAWS = {
    "none": "none",
    "linear": "a linear trend",
    "walk": "a random walk",
    "bending": "an integrated random walk",
    "season": "a seasonal pattern",
}
_MONITORS = {
    "none": '`drift="none"`',
    "linear": '`drift="linear"`',
    "walk": '`drift="walk"`',
    "smooth": '`drift="smooth"`',
    "any": '`drift="any"`',
    "repeated": "repeated test",
    "adwin": "ADWIN",
}


def _measured() -> dict:
    return json.loads(FILE.read_text(encoding="utf-8"))


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}"


def watch_alarms() -> str:
    """Without a reaction: the percentage of streams in which each monitor ever raised an alarm."""
    rows = _measured()["false_alarms"]
    lines = [
        f"Streams of {rows[0]['looks']} looks:",
        "",
        '| drift of the data | models | rows | streams | watch allows | watch | `"any"` | repeated test | ADWIN |',
        "| --- | --- | --- | ---: | --- | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        models = "retrained, explored" if row["explore"] else "retrained"
        rows_ = "5, skewed" if row["skewed"] else "normal"
        numbers = (_percent(row.get(name)) for name in ("watch", "any", "repeated", "adwin"))
        allowed = f'`"{row["allowed"]}"`'
        about = f"{_LAWS[row['law']]} | {models} | {rows_} | {row['streams']:,} | {allowed}"
        lines.append(f"| {about} | {' | '.join(numbers)} |")
    return "\n".join(lines)


def watch_power() -> str:
    """With a reaction: the percentage of streams in which it is detected, and the median look of detection."""
    rows = _measured()["power"]
    sizes = sorted({row["explore"] for row in rows})
    lines = [
        f"A reaction of {rows[0]['effect']}; {rows[0]['streams']:,} streams of {rows[0]['looks']} looks; percentage of "
        "streams in which it is detected (median look of detection in parentheses):",
        "",
        "| | " + " | ".join("retrained only" if not size else f"exploration {size:g}" for size in sizes) + " |",
        "| --- |" + " ---: |" * len(sizes),
    ]
    for monitor, label in _MONITORS.items():
        found = {row["explore"]: row for row in rows if row["allowed"] == monitor}
        cells = []
        for size in sizes:
            row = found.get(size)
            delay = "" if row is None or row["delay"] is None else f" ({row['delay']:.0f})"
            cells.append("" if row is None else f"{_percent(row['shown'])}{delay}")
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def watch_load() -> str:
    """The load of a hundred thousand looks by one watch."""
    row = _measured()["load"]
    early, middle, late = (f"{size / 1024:.0f}" for size in row["state_bytes"])
    used = [f"{size / 2**20:.0f}" for size in row["resident_bytes"]]
    each = 1000 * row["ours_s"] / row["looks"]
    return (
        f"{row['benchmark']}, {each:.1f} ms each: the state takes {early} KiB after a quarter of them, {middle} KiB "
        f"halfway and {late} KiB at the end; the process uses {used[0]}, {used[1]} and {used[2]} MiB of memory."
    )
