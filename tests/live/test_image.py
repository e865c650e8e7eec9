"""The image, built from the Dockerfile itself by buildah, on a root of this machine's own files: no registry is asked.

What stands for the base image has this machine's Debian packages and Python, in the place of those of python:slim.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from performative.live.export import export

pytestmark = pytest.mark.slow
CHECKOUT = Path(__file__).parents[2]
# Beside packages that are marked essential: what they, and Python, load.
PACKAGES = (
    "ca-certificates", "dash", "libacl1", "libattr1", "libaudit1", "libblkid1", "libbz2-1.0", "libc6", "libcap-ng0",
    "libcap2", "libcom-err2", "libcrypt1", "libdb5.3", "libexpat1", "libffi8", "libgcc-s1", "libgmp10",
    "libgssapi-krb5-2", "libk5crypto3", "libkeyutils1", "libkrb5-3", "libkrb5support0", "liblzma5", "libmd0",
    "libmount1", "libncursesw6", "libnsl2", "libpam-modules", "libpam-runtime", "libpam0g", "libpcre2-8-0",
    "libreadline8", "libselinux1", "libsemanage2", "libsepol2", "libsmartcols1", "libsqlite3-0", "libssl3",
    "libstdc++6", "libsystemd0", "libtinfo6", "libtirpc3", "libuuid1", "libzstd1", "login", "mawk", "openssl",
    "passwd", "zlib1g",
)  # fmt: skip


def say(*words, **options):
    ended = subprocess.run([str(word) for word in words], capture_output=True, text=True, **options)
    assert ended.returncode == 0, f"{words}\n{ended.stdout[-4000:]}\n{ended.stderr[-4000:]}"
    return ended.stdout.strip()


def make_root(folder):
    """Files of Debian packages as they lie here, and this Python under /usr/local."""
    for name in ("bin", "sbin", "lib", "lib64"):
        (folder / "usr" / name).mkdir(parents=True)
        (folder / name).symlink_to(f"usr/{name}")
    for name, mode in (("tmp", 0o1777), ("var/tmp", 0o1777), ("root", 0o700), ("proc", 0o755), ("dev", 0o755)):
        (folder / name).mkdir(parents=True)
        (folder / name).chmod(mode)
    told = say("dpkg-query", "--show", "--showformat", "${Package} ${Essential} ${Status}\n")
    known = [line.split() for line in told.splitlines() if line.endswith("installed")]
    wanted = [name for name, essential, *_ in known if essential == "yes" or name in PACKAGES]
    files = {line for line in say("dpkg", "--listfiles", *wanted).splitlines() if line.startswith("/")}
    files |= {"/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow", "/etc/ld.so.conf", "/etc/login.defs"}
    files |= {"/etc/ssl/certs/ca-certificates.crt", "/usr/bin/awk", "/etc/alternatives/awk"}
    left = ("/usr/share/doc/", "/usr/share/man/", "/usr/share/locale/", "/usr/share/info/")
    for file in sorted(files):
        path = Path(file)
        if file.startswith(left) or not (path.is_symlink() or path.is_file()):
            continue
        there = folder / path.parent.resolve().relative_to("/") / path.name  # /lib is a link to /usr/lib
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, there, follow_symlinks=False)
    base = Path(sys.base_prefix)
    skipped = shutil.ignore_patterns("__pycache__", "test", "site-packages", "*.a")
    for name in ("bin", "lib", "include"):
        shutil.copytree(base / name, folder / "usr" / "local" / name, symlinks=True, ignore=skipped, dirs_exist_ok=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "usr" / "local" / "lib" / version / "site-packages"
    packages.mkdir()
    for path in (base / "lib" / version / "site-packages").glob("pip*"):  # `python -m venv` brings its own
        shutil.copytree(path, packages / path.name)
    for name in ("python", "python3"):
        link = folder / "usr" / "local" / "bin" / name
        link.unlink(missing_ok=True)
        link.symlink_to(version)
    say("ldconfig", "-r", folder)


def package_sources(folder):
    """What pip reads packages from here, for the build alone: its configuration, and folders that this names."""
    settings = say(sys.executable, "-m", "pip", "config", "list")
    lines, places = ["[global]"], set()
    for line in settings.splitlines():
        name, _, value = line.partition("=")
        value = value.strip("'")
        lines.append(f"{name.rpartition('.')[2]} = {value}")
        places |= {word.removeprefix("file://") for word in value.split() if word.startswith(("/", "file:///"))}
    (folder / "pip.conf").write_text("\n".join(dict.fromkeys(lines)) + "\n")
    roots = {Path(*Path(place).parts[:3]) for place in places if Path(place).is_dir()}
    volumes = [f"{root}:{root}:ro" for root in sorted(roots)] + [f"{folder / 'pip.conf'}:/etc/pip.conf:ro"]
    return [word for volume in volumes for word in ("--volume", volume)]


@pytest.fixture
def buildah():
    """buildah with a store of its own, on a short path."""
    if os.geteuid() != 0 or shutil.which("buildah") is None or shutil.which("dpkg-query") is None:
        pytest.skip("an image is built here by root, with buildah, from Debian packages")
    with tempfile.TemporaryDirectory(prefix="pf-image-", ignore_cleanup_errors=True) as store:
        place = ("--root", f"{store}/root", "--runroot", f"{store}/run", "--storage-driver", "vfs")

        def call(*words, **options):
            return say("buildah", *place, *words, **options)

        yield call
        subprocess.run(["buildah", *place, "rm", "--all"], capture_output=True)
        subprocess.run(["buildah", *place, "rmi", "--all", "--force"], capture_output=True)


def test_the_dockerfile_builds_an_image_whose_commands_run(buildah, tmp_path):
    root, context = tmp_path / "root", tmp_path / "context"
    root.mkdir()
    make_root(root)
    source = tmp_path / "source"  # what a build leaves behind stays out of the checkout
    shutil.copytree(CHECKOUT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(CHECKOUT / name, source)
    export("compose", context, 1)
    say(sys.executable, "-m", "build", "--wheel", "--outdir", context, source)
    shutil.copy(CHECKOUT / "constraints.txt", context)
    (base,) = {
        line.split()[1]
        for line in (context / "Dockerfile").read_text().splitlines()
        if line.startswith("FROM docker.io")
    }
    empty = buildah("from", "scratch")
    buildah("copy", "--quiet", empty, root, "/")
    buildah("config", "--env", "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", empty)
    buildah("commit", "--quiet", empty, base)
    buildah("rm", empty)
    how = ("--isolation", "chroot", "--pull-never", "--layers=false", "--format", "docker", *package_sources(tmp_path))
    buildah("build", *how, "--tag", "performative:latest", context)
    made = buildah("from", "--pull-never", "performative:latest")

    def run(*words):
        return buildah("run", "--isolation", "chroot", made, "--", *words)

    assert run("id", "-u") == "10001"
    assert run("performative", "--version").startswith("performative")
    assert "Flower version" in run(
        "python", "-m", "performative.live.loopback.upstream", "flower-superlink", "--version"
    )
    assert run("sh", "-c", "echo $HOME $FLWR_HOME $FLWR_TELEMETRY_ENABLED").split() == ["/state", "/state/flower", "0"]
    assert run("sh", "-c", "command -v flwr-clientapp") == "/opt/performative/bin/flwr-clientapp"
    outside = "import pathlib; pathlib.Path('/opt/performative/mine').touch()"
    assert "PermissionError" in run("python", "-c", f"try:\n    {outside}\nexcept OSError as e:\n    print(repr(e))")
