"""What is in the two archives: `python archives.py FOLDER`. Needs the standard library alone."""

import re
import sys
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
PACKAGE = CHECKOUT / "src" / "performative"
# Besides Python: what the package reads at run time, and the mark that it has types.
DATA = (
    "py.typed",
    "live/template/*",
    "live/manifests/*",
    "report/assets/*",
    "suite/shipped/*.json",
    "papers/*.toml",
    "papers/*.json",
    "papers/*/*.bib",
    "papers/*/*.toml",
)
LARGEST_WHEEL = 3_000_000


def expected_files() -> set[str]:
    """All modules and package data of the checkout, as paths in a wheel."""
    found = {path for path in PACKAGE.rglob("*.py")}
    for pattern in DATA:
        found |= {path for path in PACKAGE.glob(pattern) if path.is_file()}
    return {f"performative/{path.relative_to(PACKAGE).as_posix()}" for path in found} | {"performative_command.py"}


def check_wheel(path: Path, project: dict) -> list[str]:
    """What is wrong with a wheel, in sentences."""
    wrong = []
    with zipfile.ZipFile(path) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        info = f"performative-{project['version']}.dist-info"
        inside = {name for name in names if not name.startswith(info)}
        missing, strange = expected_files() - inside, inside - expected_files()
        if missing:
            wrong.append(f"{path.name} lacks {sorted(missing)}")
        if strange:
            wrong.append(f"{path.name} holds {sorted(strange)}, which is no part of the package")
        if f"{info}/licenses/LICENSE" not in names:
            wrong.append(f"{path.name} lacks the license")
        metadata = Parser().parsestr(archive.read(f"{info}/METADATA").decode())
        points = archive.read(f"{info}/entry_points.txt").decode()
    if "performative = performative_command:main" not in points:
        wrong.append(f"{path.name} does not install the command `performative`")
    return wrong + check_metadata(metadata, project)


def check_metadata(metadata, project: dict) -> list[str]:
    """METADATA against pyproject.toml."""
    single = {
        "Name": project["name"],
        "Version": project["version"],
        "Summary": project["description"],
        "License-Expression": project["license"],
        "License-File": "LICENSE",
        "Requires-Python": project["requires-python"],
        "Description-Content-Type": "text/markdown",
    }
    wrong = [
        f"METADATA {field}: {metadata[field]!r} instead of {value!r}"
        for field, value in single.items()
        if metadata[field] != value
    ]
    needed = {_plain(line) for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line}
    if needed != {_plain(line) for line in project["dependencies"]}:
        wrong.append(f"METADATA Requires-Dist: {sorted(needed)} instead of {sorted(project['dependencies'])}")
    extras = set(metadata.get_all("Provides-Extra", []))
    if extras != set(project["optional-dependencies"]):
        wrong.append(f"METADATA Provides-Extra: {sorted(extras)}")
    if set(metadata.get_all("Classifier", [])) != set(project["classifiers"]):
        wrong.append(f"METADATA Classifier: {metadata.get_all('Classifier')}")
    if "# performative" not in (metadata.get_payload() or ""):
        wrong.append("METADATA does not hold the README")
    return wrong


def check_sdist(path: Path, project: dict) -> list[str]:
    """An sdist holds the sources of the package, its papers, and neither tests nor data."""
    root = f"{project['name']}-{project['version']}/"
    with tarfile.open(path) as archive:
        names = {member.name.removeprefix(root) for member in archive.getmembers() if member.isfile()}
    wanted = {f"src/{name}" for name in expected_files()} | {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"}
    wrong = [f"{path.name} lacks {sorted(wanted - names)}"] if wanted - names else []
    strange = [name for name in names if re.match(r"(tests|docs|benchmarks|examples|data|results)/", name)]
    if strange:
        wrong.append(f"{path.name} holds {sorted(strange)[:5]} and {len(strange)} such files in all")
    return wrong


def _plain(requirement: str) -> str:
    """A requirement without what is a matter of taste: case, blanks, and the order of extras and of bounds."""
    name, extras, bounds = re.fullmatch(
        r"([\w.-]+)(?:\[([^\]]*)\])?(.*)", requirement.replace(" ", "").lower()
    ).groups()
    return (
        f"{name.replace('_', '-')}[{','.join(sorted((extras or '').split(',')))}]{','.join(sorted(bounds.split(',')))}"
    )


def main(folder: str) -> None:
    """Exit with what is wrong, or say what was looked at."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wheels, sdists = list(Path(folder).glob("*.whl")), list(Path(folder).glob("*.tar.gz"))
    if len(wheels) != 1 or len(sdists) != 1:
        sys.exit(f"{folder} should hold one wheel and one sdist, not {wheels + sdists}")
    wrong = check_wheel(wheels[0], project) + check_sdist(sdists[0], project)
    if wheels[0].stat().st_size > LARGEST_WHEEL:
        wrong.append(f"{wheels[0].name} has {wheels[0].stat().st_size:,} bytes, more than {LARGEST_WHEEL:,}")
    if wrong:
        sys.exit("\n".join(wrong))
    for path in (*sdists, *wheels):
        print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main(sys.argv[1])
