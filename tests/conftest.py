"""Every test runs with runtime type checks, strict dtype promotion and warnings as errors."""

import importlib.util
from collections import Counter
from pathlib import Path

import jax
import pytest

if importlib.util.find_spec("beartype"):
    from jaxtyping import install_import_hook

    install_import_hook("performative", "beartype.beartype")

jax.config.update("jax_numpy_dtype_promotion", "strict")
# Most tests compile for seconds and run for milliseconds; those that run for long ask for `optimised_programs`.
jax.config.update("jax_disable_most_optimizations", True)

MAPS = Path("/proc/self/maps")
ANSWERS = ("right", "does not know", "wrong")


@pytest.fixture(autouse=True, scope="module")
def few_programs():
    """Each compiled program holds mappings of memory; Linux allows a process 65530 of them, then it dies."""
    yield
    if MAPS.exists() and len(MAPS.read_bytes().splitlines()) > 30_000:
        jax.clear_caches()


@pytest.fixture(scope="module")
def optimised_programs():
    """For modules whose programs run for longer than they take to compile."""
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture
def double_precision():
    """float64 for everything inside."""
    with jax.enable_x64(True):
        yield


def pytest_terminal_summary(terminalreporter):
    """Verdicts compared with the truth in tests/truth, over all worker processes."""
    total = Counter()
    reports = [r for rs in terminalreporter.stats.values() for r in rs if getattr(r, "when", "") == "teardown"]
    for report in reports:
        for name, rows in report.user_properties:
            if name == "truth":
                for verdict, answer, n in rows:
                    total[verdict, answer] += n
    if total:
        terminalreporter.section("verdicts compared with the truth")
        terminalreporter.write_line(f"{'':34}{ANSWERS[0]:>10}{ANSWERS[1]:>16}{ANSWERS[2]:>8}")
        for verdict in sorted({verdict for verdict, _ in total}):
            right, unknown, wrong = (total[verdict, answer] for answer in ANSWERS)
            terminalreporter.write_line(f"{verdict:34}{right:>10}{unknown:>16}{wrong:>8}")
