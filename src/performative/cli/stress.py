"""`performative stress MODEL people.csv`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from performative.cli.assess import LABEL, PEOPLE, POSITIVE, STRATEGIC, listed
from performative.cli.output import Exit, Failure, Json, failing, reporting


class Gain(StrEnum):
    """What people gain by responding."""

    SCORE = "score"
    ACCEPTANCE = "acceptance"


def stress(
    model: Annotated[Path, typer.Argument(help="Fitted classifier: .joblib or .pkl with --trust, or .onnx.")],
    people: Annotated[str, typer.Argument(help=PEOPLE)],
    label: Annotated[str, typer.Option("--label", help=LABEL)],
    positive: Annotated[str | None, typer.Option("--positive", help=POSITIVE)] = None,
    strategic: Annotated[str, typer.Option("--strategic", help=STRATEGIC)] = "",
    strengths: Annotated[str, typer.Option("--strengths", help="Strengths, comma-separated.")] = "0.1,0.3,1,3",
    group: Annotated[str | None, typer.Option("--group", help="Group column, for rates by group.")] = None,
    gain: Annotated[Gain, typer.Option("--gain", help="What people gain by responding.")] = Gain.SCORE,
    desired: Annotated[str | None, typer.Option("--desired", help="Class people want (default: the first).")] = None,
    ignore: Annotated[str, typer.Option("--ignore", help="Columns to ignore, comma-separated.")] = "",
    rows: Annotated[int, typer.Option("--people", min=10, help="Maximum number of people, drawn at random.")] = 1000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of that draw and of the search.")] = 0,
    trust: Annotated[bool, typer.Option("--trust", help="Unpickle the model, which runs code in it.")] = False,
    as_json: Json = False,
) -> None:
    """Stress-test any fitted classifier against people's responses: accuracy, groups, thresholds."""
    with reporting(as_json) as reporter:
        from performative.assess.reading import read_people
        from performative.sklearn.model_files import labels_for, load_classifier, movable, rows_for, wanted_class
        from performative.sklearn.stressing import stress as ask

        try:
            sizes = [float(value) for value in listed(strengths)]
        except ValueError as error:
            raise Failure(f"--strengths {strengths}: pass comma-separated numbers.", Exit.BAD_INPUT) from error
        with failing((ValueError, OSError), file=str(model)):
            fitted = load_classifier(model, trust)
            frame, _ = read_people(people)
            roles = [("--label", label), ("--group", group), *(("--ignore", name) for name in listed(ignore))]
            for role, name in roles:
                if name is not None and name not in frame.columns:
                    from performative._base.checks import nearest

                    raise Failure(f"{role}: there is no column {name!r}.{nearest(name, frame.columns)}", Exit.BAD_INPUT)
            if label in (group, *listed(ignore)):
                role = "--group" if label == group else "--ignore"
                raise Failure(f"{role} {label}: this column is the label; choose another.", Exit.BAD_INPUT)
            fixed = {label, group or label, *listed(ignore)}
            X = rows_for(fitted, frame, fixed)
            wanted = wanted_class(fitted, positive, desired)
            y = labels_for(fitted, frame[label], label, positive)
            if both := fixed.intersection(listed(strategic)):
                raise Failure(
                    f"--strategic {min(both)}: people cannot change the label, the group or an ignored column.",
                    Exit.BAD_INPUT,
                )
            columns: list[Any] | None = list(listed(strategic)) or movable(X, fixed)
            if columns is not None and not hasattr(X, "columns"):
                named = [name for name in frame.columns if name not in fixed]
                columns = [named.index(name) if name in named else name for name in columns]
            with reporter.errors.status("stressing"):
                found = ask(
                    fitted, X, y, strategic=columns, strengths=sizes, groups=None if group is None else frame[group],
                    gain=gain.value, desired=wanted, people=rows, seed=seed,
                )  # fmt: skip
        reporter.show(found.rates().terminal())
        reporter.show()
        for line in found.sentences():
            reporter.show(line)
        reporter.result({"status": "completed", "file": people, "model": str(model), **found.to_dict()})
