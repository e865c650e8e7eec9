"""The findings of an analysis, as data: a code, a severity, and the facts. They become text in one place.

    Finding("verdict.on-the-edge", "caution", {"factor": 1.0})       an analysis says this,
    Words({"verdict.on-the-edge": "The factor is {factor:.3g}."})    and this is how people read it

A code is a group and a name. A sentence depends only on the facts of its finding, so a list of findings can be stored,
sent as JSON and rendered later, or in another language.
"""

import inspect
import math
import string
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import jax
import numpy as np

__all__ = ["Finding", "Words", "part", "plain"]

Severity = Literal["info", "caution", "warning", "error"]
SEVERITIES: tuple[str, ...] = get_args(Severity)
# A format string over the facts, or a function that takes them by name.
Sentence = str | Callable[..., str]


@dataclass(frozen=True)
class Finding:
    """One finding.

    Attributes:
        code: `group.name`, the key of its sentence in `Words`.
        severity: "info"; "caution": the answer holds with a limitation; "warning": it must not be ignored; "error".
        data: The facts, JSON-compatible except for non-finite numbers.
    """

    code: str
    severity: Severity
    data: Mapping[str, Any]


def part(findings: Iterable[Finding], group: str, **facts: Any) -> list[Finding]:
    """The findings of a group whose data match `facts`."""
    return [
        one
        for one in findings
        if one.code.startswith(f"{group}.") and all(one.data.get(name) == value for name, value in facts.items())
    ]


class Words(string.Formatter):
    """The sentences of one analysis.

    Args:
        by_code: The sentence of each code.
        formats: Custom format specifiers of a placeholder: `{p_value:chance}` calls `chance(p_value)`.
    """

    def __init__(self, by_code: Mapping[str, Sentence], **formats: Callable[[Any], str]):
        self.sentences, self.formats = by_code, formats

    def format_field(self, value: Any, format_spec: str) -> str:
        made = self.formats.get(format_spec)
        return str(super().format_field(value, format_spec)) if made is None else made(value)

    def say(self, finding: Finding) -> str:
        sentence = self.sentences[finding.code]
        return self.vformat(sentence, (), finding.data) if isinstance(sentence, str) else sentence(**finding.data)

    def tell(self, findings: Iterable[Finding]) -> str:
        """All findings as consecutive sentences."""
        return " ".join(text for one in findings if (text := self.say(one)))

    def to_json(self, findings: Iterable[Finding]) -> list[dict[str, Any]]:
        """The facts with their text, as described by `schema`."""
        return [
            {"code": one.code, "severity": one.severity, "data": plain(dict(one.data)), "text": self.say(one)}
            for one in findings
        ]

    def facts(self, code: str) -> list[str]:
        """Names of the facts that the sentence needs."""
        sentence = self.sentences[code]
        if isinstance(sentence, str):
            return sorted({name.split("[")[0] for _, name, _, _ in self.parse(sentence) if name})
        parameters = inspect.signature(sentence).parameters.values()
        return sorted(one.name for one in parameters if one.kind is not one.VAR_KEYWORD)

    def schema(self) -> dict[str, Any]:
        """JSON Schema of what `to_json` returns: the codes, and the facts that each requires."""
        kinds = [
            {"properties": {"code": {"const": code}, "data": {"required": self.facts(code)}}} for code in self.sentences
        ]
        finding = {
            "type": "object",
            "required": ["code", "severity", "data", "text"],
            "additionalProperties": False,
            "properties": {
                "code": {"type": "string"},
                "severity": {"enum": list(SEVERITIES)},
                "data": {"type": "object"},
                "text": {"type": "string"},
            },
            "oneOf": kinds,
        }
        return {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "array", "items": finding}


class Plain:
    """A record that is converted to JSON field by field."""

    def to_dict(self) -> dict[str, Any]:
        """All fields for strict JSON: None for non-finite numbers."""
        return {name: plain(value) for name, value in vars(self).items()}


def plain(value: Any) -> Any:
    """Only numbers, text, lists and dictionaries; None for non-finite numbers."""
    if isinstance(value, Plain):
        return value.to_dict()
    if value is None or isinstance(value, (bool, str, int)):
        return value
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if isinstance(value, (np.ndarray, np.generic, jax.Array)):
        return plain(np.asarray(value).tolist())
    leaves = jax.tree.leaves(value)  # a model of the user's own class
    return [plain(leaf) for leaf in leaves] if leaves and leaves[0] is not value else str(value)
