"""`performative schema`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from performative.cli.output import Json, check_out, reporting


def schema(
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write it to this file.")] = None,
    as_json: Json = False,
) -> None:
    """Print the JSON Schema of experiment files, so that editors complete and check them.

    It lists every recipe and part that is installed, with its arguments. An editor with TOML support (such as one with
    Taplo or Even Better TOML) reads it if the first line of the file is: #:schema performative.schema.json
    """
    with reporting(as_json) as reporter:
        from performative.config.schema import experiment_schema

        if out is not None:
            check_out(out, "a schema is a JSON file", ".json")
        found = experiment_schema()
        text = json.dumps(found, indent=1)
        if out is not None:
            out.write_text(text + "\n", encoding="utf-8")
            reporter.path("wrote ", out)
            reporter.result({"status": "completed", "file": str(out)})
        else:
            print(text)
