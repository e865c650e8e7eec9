"""What `performative doctor` checks."""

import os
import platform
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from performative._base import plugins
from performative._base.checkup import Check

# Bytes that should be free, on disk and in memory: JAX and a small run take about half of that.
_ROOM = 1 << 30
# What an extra adds, for those that add a capability.
_EXTRAS = {
    "flower": ("flwr", "federations (`performative federation`)"),
    "audit": ("onnxruntime", "audits of ONNX and MLflow models, and of PostgreSQL logs"),
    "spark": ("pyspark", "audits on Spark"),
    "watch": ("starlette", "the watch as a web service"),
    "suite": ("gymnasium", "environments for Gymnasium"),
}
_SLOW = ("JAX_DISABLE_JIT", "JAX_DEBUG_NANS", "JAX_DISABLE_MOST_OPTIMIZATIONS")


def examine(folder: Path) -> Iterator[Check]:
    """Look at the installation and this machine, then run a problem with a known answer."""
    yield _python()
    yield _packages()
    yield _extras()
    yield from _plugins()
    yield from _settings()
    yield _memory()
    yield _disk(folder)
    try:
        yield _device()
        yield _known_answer()
    except Exception as error:
        what = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        yield Check("jax", f"it does not run ({what})", "reinstall jax and jaxlib: pip install --force-reinstall jax")


def _python() -> Check:
    here = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    return Check("python", here, "" if sys.version_info >= (3, 11) else "install Python 3.11 or later")


def _packages() -> Check:
    """Whether what is installed is what performative declares."""
    from packaging.requirements import Requirement

    from performative._version import __version__

    wrong, count = [], 0
    for line in metadata.requires("performative") or []:
        needed = Requirement(line)
        if needed.marker is not None and not needed.marker.evaluate({"extra": ""}):
            continue
        count += 1
        try:
            version = metadata.version(needed.name)
        except metadata.PackageNotFoundError:
            wrong.append((needed, "missing"))
            continue
        if not needed.specifier.contains(version, prereleases=True):
            wrong.append((needed, version))
    if wrong:
        told = ", ".join(f"{needed.name} {version}" for needed, version in wrong)
        return Check("packages", told, "pip install " + " ".join(f"'{needed}'" for needed, _ in wrong))
    jax = metadata.version("jax")
    return Check("packages", f"performative {__version__}, jax {jax}; all {count} packages are compatible")


def _extras() -> Check:
    there = [name for name, (package, _) in _EXTRAS.items() if _installed(package)]
    absent = [f"{what}: pip install 'performative[{name}]'" for name, (_, what) in _EXTRAS.items() if name not in there]
    return Check("extras", "; ".join([f"installed: {', '.join(there) or 'none'}", *absent]))


def _installed(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def _plugins() -> Iterator[Check]:
    """Whether what other packages offer can be imported."""
    for group in plugins.GROUPS:
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            offered = plugins.load(group)
        for warning in heard:
            yield Check("plugins", str(warning.message), "update or remove that package")
        if offered:
            yield Check("plugins", f"{group}: {', '.join(offered)}")


def _settings() -> Iterator[Check]:
    """Environment variables that make JAX slow."""
    for name in _SLOW:
        if os.environ.get(name, "0").lower() not in ("", "0", "false"):
            yield Check("settings", f"{name}={os.environ[name]} makes runs slow", f"unset {name}")


def _memory() -> Check:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return Check("memory", f"{cores} cores; free memory is unknown on this system")
    found = f"{free / 2**30:.1f} GiB free, {cores} cores"
    return Check("memory", found, "" if free >= _ROOM else "close other programs; a run needs about 1 GiB")


def _disk(folder: Path) -> Check:
    try:
        with tempfile.NamedTemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free
    except OSError as error:
        return Check("disk", f"{folder.absolute()}: {error.strerror}", "choose a writable folder: --folder")
    found = f"{free / 2**30:.1f} GiB free in {folder.absolute()}"
    return Check("disk", found, "" if free >= _ROOM else "free some space; results and checkpoints are written there")


def _device() -> Check:
    import jax

    devices = jax.devices()
    found = f"{len(devices)} x {devices[0].device_kind} ({jax.default_backend()})"
    unused = jax.default_backend() == "cpu" and shutil.which("nvidia-smi") and not os.environ.get("JAX_PLATFORMS")
    remedy = "an NVIDIA GPU is not used: pip install 'performative[cuda]'" if unused else ""
    return Check("device", found, remedy)


def _known_answer() -> Check:
    """P-FedAvg without noise follows theta <- theta - eta (theta - mean - eps theta)."""
    import jax

    from performative._engine.run import run
    from performative.losses import squared
    from performative.populations import Gaussian
    from performative.problem import Problem
    from performative.recipes import p_fedavg

    mean, eps, eta, rounds = 2.0, 0.5, 0.2, 20
    problem = Problem(squared, Gaussian([mean, mean], eps, 0.0))
    found = run(problem, p_fedavg(eta), rounds=rounds, theta=0.0).final.item()
    expected = mean / (1 - eps) * (1 - (1 - eta * (1 - eps)) ** rounds)
    exact = abs(found - expected) < 1e-5
    told = f"{rounds} rounds of P-FedAvg on {jax.default_backend()} gave {found:.6f}, exact {expected:.6f}"
    return Check("known answer", told, "" if exact else "reinstall jax and jaxlib, and report this")
