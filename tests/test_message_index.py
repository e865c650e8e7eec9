"""Every coded message is in the index, is given somewhere, and has a test."""

import ast
import re
import warnings
from pathlib import Path

import pytest

import performative
from performative._base.messages import MESSAGES, PerformativeWarning, coded, hearing, page, warn

SOURCE = Path(performative.__file__).parent
TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "messages.md"


def given():
    """Codes that the package gives: the first argument of `warn`, `coded` and `refused`, with their place."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
                first = node.args[0] if node.args else None
                if (
                    name in ("warn", "coded", "refused")
                    and isinstance(first, ast.Constant)
                    and isinstance(first.value, str)
                ):
                    yield first.value, f"{path.relative_to(SOURCE)}:{node.lineno}"


def test_codes_are_those_of_the_index():
    used = dict(given())
    unknown = {code: place for code, place in used.items() if code not in MESSAGES and " " not in code}
    assert not unknown, f"not in performative._base.messages.MESSAGES: {unknown}"
    assert set(MESSAGES) <= set(used), f"in the index, but never given: {sorted(set(MESSAGES) - set(used))}"


def test_each_message_has_a_test():
    tests = "\n".join(p.read_text() for p in sorted(TESTS.rglob("*.py")) if p != Path(__file__))
    untested = [code for code in MESSAGES if code not in tests]
    assert not untested, f"no test names {untested}: pytest.raises(..., match='code') or pytest.warns"


def test_the_page_is_that_of_the_index():
    assert PAGE.read_text() == page(), "make it again: make messages"


def test_codes_read_as_words_and_lines_say_what_to_do():
    for code, message in MESSAGES.items():
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", code), code
        assert (message.when[0].isupper() or message.when[0] == "`") and message.when.endswith("."), code
        assert (message.remedy[0].isupper() or message.remedy[0] == "`") and message.remedy.endswith("."), code


def test_what_a_caller_says_itself_is_heard_and_all_else_goes_on():
    with hearing("risk-falls-far-out") as heard:
        warn("risk-falls-far-out", "Text.")
    assert heard == {"risk-falls-far-out"}
    with pytest.warns(PerformativeWarning, match="sampled-point"), hearing("risk-falls-far-out") as heard:
        warn("sampled-point", "Text.")
    assert not heard
    with pytest.warns(RuntimeWarning, match="overflow"), hearing("risk-falls-far-out"):
        warnings.warn("overflow", RuntimeWarning, stacklevel=1)
    # A block that fails does not swallow what was said before.
    failing, saying = (
        pytest.raises(ValueError, match="no answer"),
        pytest.warns(PerformativeWarning, match="sampled-point"),
    )
    with saying, failing, hearing("risk-falls-far-out"):
        warn("sampled-point", "Text.")
        raise ValueError("no answer")


def test_the_code_ends_the_text(monkeypatch):
    monkeypatch.setitem(MESSAGES, "for-this-test", None)
    assert coded("for-this-test", "Text.") == "Text. [for-this-test]"
    with pytest.warns(PerformativeWarning, match=r"Text\. \[for-this-test\]"):
        warn("for-this-test", "Text.")
    with pytest.raises(KeyError, match="not-a-code"):
        coded("not-a-code", "Text.")


def test_a_warning_points_at_the_users_line():
    """Through wrappers that check arguments, and however deep inside it was given."""
    problem = performative.Problem(performative.losses.squared, performative.populations.Gaussian([1.0], 3.0, 1.0))
    with pytest.warns(PerformativeWarning, match="run-diverged") as told:
        performative.run(problem, performative.p_fedavg(5.0), 200, theta=1.0, record=performative.Record(risks=False))
    assert {warning.filename for warning in told} == {__file__}
