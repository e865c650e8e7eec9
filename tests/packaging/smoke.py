"""Use the installed package as a user would: `python -I smoke.py VERSION`, in an empty folder."""

import json
import subprocess
import sys
import sysconfig
from importlib import metadata, resources
from pathlib import Path

COMMAND = Path(sysconfig.get_path("scripts")) / "performative"


def ask(*words: str) -> str:
    """The standard output of a command of the package, which must succeed."""
    done = subprocess.run([COMMAND, *words], capture_output=True, text=True, timeout=300)
    if done.returncode:
        sys.exit(f"performative {' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def expect(holds: bool, what: str) -> None:
    """An assert that -O does not remove."""
    if not holds:
        sys.exit(f"smoke test: {what}")
    print(f"  {what}")


def main(version: str) -> None:
    import performative as pf

    package = Path(pf.__file__).parent
    expect(Path(sys.prefix) in package.parents, f"imported from the clean environment, {package}")
    expect(pf.__version__ == metadata.version("performative") == version, f"version {version}")
    told = json.loads(ask("--version", "--json"))
    expect(version in told.values(), f"the command says so: {told}")

    files = resources.files("performative")
    expect(files.joinpath("py.typed").is_file(), "py.typed is there")
    template = [entry.name for entry in files.joinpath("live", "template").iterdir()]
    expect(any(name.endswith(".toml") for name in template), f"live/template is there: {sorted(template)}")
    experiments = files.joinpath("papers")
    if experiments.is_dir():
        count = len(list(Path(str(experiments)).rglob("*.toml")))
        expect(count > 0, f"{count} experiments are there")
    expect(not list(package.rglob("test_*.py")), "no tests are installed")

    ask("demo", "--quick", "--out", "demo")
    written = sorted(path.name for path in Path("demo").iterdir())
    expect(any(name.endswith(".html") for name in written), f"performative demo wrote {written}")

    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian([0.0, 1.0, 2.0], [0.2, 0.4, 0.6], 1.0))
    algorithm = pf.p_fedavg(pf.schedules.harmonic(4.0, 20.0), local_steps=2)
    history = pf.run(problem, algorithm, rounds=50, theta=0.0, seed=0, repeats=20)
    expect(
        abs(history.final.mean() - pf.stable_point(problem)) < 0.3,
        f"a run ends near theta_PS: {history.final.mean():.2f}",
    )
    history.save("history.nc")
    expect(pf.History.load("history.nc").status == history.status == "completed", "its history can be saved and read")
    expect("@" in pf.cite(algorithm), "its papers can be cited")


if __name__ == "__main__":
    main(sys.argv[1])
