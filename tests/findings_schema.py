"""Compare JSON with the part of JSON Schema that `performative.findings` uses."""

import json

KINDS = {"object": dict, "array": list, "string": str}


def wrong(value, schema, place="findings"):
    """What does not fit, in words."""
    if "type" in schema and not isinstance(value, KINDS[schema["type"]]):
        return [f"{place}: {value!r} is no {schema['type']}"]
    said = []
    if "enum" in schema and value not in schema["enum"]:
        said.append(f"{place}: {value!r} is none of {schema['enum']}")
    if "const" in schema and value != schema["const"]:
        said.append(f"{place}: {value!r} is not {schema['const']!r}")
    inside = schema.get("properties", {})
    said += [f"{place} lacks {name}" for name in schema.get("required", ()) if name not in value]
    if schema.get("additionalProperties") is False:
        said += [f"{place}: {name} is not in the schema" for name in value if name not in inside]
    for name, part in inside.items():
        if name in value:
            said += wrong(value[name], part, f"{place}.{name}")
    if "items" in schema:
        said += [line for i, entry in enumerate(value) for line in wrong(entry, schema["items"], f"{place}[{i}]")]
    if "oneOf" in schema:
        fits = sum(not wrong(value, part) for part in schema["oneOf"])
        said += [] if fits == 1 else [f"{place}: {value} fits {fits} kinds instead of one"]
    return said


def check(found, words):
    """There are findings, they are strict JSON, and they are as the schema of their words has them."""
    json.dumps(found, allow_nan=False)
    assert found and not (said := wrong(found, words.schema())), said
    assert all(one["text"].strip() for one in found)
