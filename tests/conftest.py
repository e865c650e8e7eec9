"""Every test runs with runtime type checks, strict dtype promotion and warnings as errors."""

import contextlib
import gc
import importlib.util
import inspect
from collections import Counter
from pathlib import Path

import jax
import pytest

if importlib.util.find_spec("beartype"):
    import jaxtyping

    _jaxtyped = jaxtyping.jaxtyped

    def jaxtyped(*, typechecker):
        """Leave out nested functions: each call creates them anew, and a checked one takes a millisecond to make."""
        decorate = _jaxtyped(typechecker=typechecker)

        def is_made_anew(thing):
            return inspect.isfunction(thing) and "<locals>" in thing.__qualname__ and not _takes_keywords(thing)

        return lambda thing: thing if is_made_anew(thing) else decorate(thing)

    def _takes_keywords(function):
        return bool(function.__code__.co_flags & inspect.CO_VARKEYWORDS)

    jaxtyping.jaxtyped = jaxtyped
    jaxtyping.install_import_hook("performative", "beartype.beartype")

jax.config.update("jax_numpy_dtype_promotion", "strict")
# Most tests compile for seconds and run for milliseconds; those that run for long ask for `optimized_programs`.
jax.config.update("jax_disable_most_optimizations", True)

MAPS = Path("/proc/self/maps")
ANSWERS = ("right", "does not know", "wrong")


def pytest_collection_finish():
    """What was imported stays: no need to look for garbage in it whenever a program is traced."""
    gc.collect()
    gc.freeze()


def pytest_runtest_teardown(item, nextitem):
    """Each compiled program holds mappings of memory; Linux allows a process 65530 of them, then it dies."""
    last = nextitem is None or nextitem.path != item.path
    item.session.tests_done = getattr(item.session, "tests_done", 0) + 1
    due = last or item.get_closest_marker("slow") or item.session.tests_done % 20 == 0
    if due and MAPS.exists() and MAPS.read_bytes().count(b"\n") > 25_000:
        jax.clear_caches()


@pytest.fixture(scope="module")
def optimized_programs():
    """For modules whose programs run for longer than they take to compile."""
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture
def double_precision():
    """float64 for everything inside."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def survived(request):
    """Counts faults by kind: `with survived("a killed run"): ...` is a try, survived where nothing is raised.

    `times` says how many faults were in it.
    """
    counts = Counter()

    @contextlib.contextmanager
    def attempt(kind, times=1):
        counts[kind, "tries"] += times
        yield
        counts[kind, "survived"] += times

    yield attempt
    request.node.user_properties.append(("faults", [[*key, n] for key, n in sorted(counts.items())]))


def pytest_terminal_summary(terminalreporter):
    """Verdicts compared with the truth, and faults survived, over all worker processes."""
    total, faults = Counter(), Counter()
    reports = [r for rs in terminalreporter.stats.values() for r in rs if getattr(r, "when", "") == "teardown"]
    for report in reports:
        for name, rows in report.user_properties:
            for what, answer, n in rows if name in ("truth", "faults") else ():
                (total if name == "truth" else faults)[what, answer] += n
    if faults:
        terminalreporter.section("faults")
        terminalreporter.write_line(f"{'':44}{'tries':>8}{'survived':>10}")
        for kind in sorted({kind for kind, _ in faults}):
            terminalreporter.write_line(f"{kind:44}{faults[kind, 'tries']:>8}{faults[kind, 'survived']:>10}")
    if total:
        terminalreporter.section("verdicts compared with the truth")
        terminalreporter.write_line(f"{'':34}{ANSWERS[0]:>10}{ANSWERS[1]:>16}{ANSWERS[2]:>8}")
        for verdict in sorted({verdict for verdict, _ in total}):
            right, unknown, wrong = (total[verdict, answer] for answer in ANSWERS)
            terminalreporter.write_line(f"{verdict:34}{right:>10}{unknown:>16}{wrong:>8}")
