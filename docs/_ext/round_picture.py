"""The flow of a round, read from the engine: `python docs/_ext/round_picture.py` writes it into CONTRIBUTING.md."""

import ast
import inspect
import re
from pathlib import Path

from performative._engine.client import client_round, draw_for_client
from performative._engine.round import close_round, make_broadcast, open_round
from performative._engine.training import Training

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"
SLOTS = ("participation", "deploy", "population", "batch", "estimator", "channel", "aggregator", "sharing", "domain")
# The name of each stage, and the code it consists of, in order of execution.
STAGES = {
    "server opens": (open_round, make_broadcast),
    "each client of the cohort": (client_round, draw_for_client, Training),
    "server closes": (close_round,),
}
_PLACE = re.compile(r"```mermaid\n.*?```", re.DOTALL)


def calls(stage: tuple[object, ...]) -> list[str]:
    """The methods of parts that a stage calls, in the order of its lines: "estimator.estimate"."""
    asked: list[tuple[int, int, str]] = []
    for place, piece in enumerate(stage):
        tree = ast.parse(inspect.getsource(inspect.unwrap(piece)))  # type: ignore[arg-type]  # any function or class
        found = [
            node.func for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        ]
        asked += [(place, one.lineno, f"{ast.unparse(one.value).split('.')[-1]}.{one.attr}") for one in found]
    return list(dict.fromkeys(name for *_, name in sorted(asked) if name.split(".")[0] in SLOTS))


def picture() -> str:
    """A flowchart with one box per stage that lists the methods it calls."""
    lines, before = ["```mermaid", "flowchart LR"], ""
    for number, (title, stage) in enumerate(STAGES.items()):
        verbs = "<br/>".join(calls(stage))
        lines.append(f'  s{number}["<b>{title}</b> ({stage[0].__name__})<br/>{verbs}"]')
        if before:
            lines.append(f"  {before} -->|{'Broadcast' if number == 1 else 'Upload'}| s{number}")
        before = f"s{number}"
    return "\n".join([*lines, f"  {before} -->|State of the next round| s0", "```"])


if __name__ == "__main__":
    PAGE.write_text(_PLACE.sub(lambda _: picture(), PAGE.read_text(encoding="utf-8")), encoding="utf-8")
