"""The program's own virtual environment: made from the packages that run now, without a network.

What works here works there: same interpreter, same versions. Blocking.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

import meshai
from meshai.errors import MissingError
from meshai.ops.system import ask, must

HIDDEN_HOMES = (Path("/home"), Path("/root"), Path("/run/user"))
"""What ProtectHome=yes of the unit hides (systemd.exec(5))."""
NAME = "meshai"
STAMP = "meshai-installed"
"""A file in the environment: what it was made from."""
SCRIPTS = (NAME, "meshtastic")
"""Console scripts the operator needs: ours, and the library's for the node's settings."""
SCRIPT = """#!{python}
import sys
from {module} import {call}
sys.exit({call}())
"""


def interpreter() -> Path:
    """The Python below the running one's virtual environment."""
    return Path(os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable))


def hidden_home(path: Path) -> Path | None:
    """The home directory a file is in, where the service cannot see it; None when it is in none."""
    homes = {Path(user.pw_dir) for user in pwd.getpwall() if user.pw_uid >= 1000 or user.pw_uid == 0}
    for home in (*HIDDEN_HOMES, *sorted(homes)):
        if home != Path("/") and path.is_relative_to(home) and home != Path("/nonexistent"):
            return home
    return None


def source_tree() -> Path | None:
    """The checkout the running program comes from; None when it was installed from a wheel."""
    root = Path(meshai.__file__).resolve().parents[1]
    return root if (root / "pyproject.toml").is_file() else None


def is_running_from(directory: Path) -> bool:
    """Whether the running program is the one in this environment."""
    return Path(sys.prefix).resolve() == directory.resolve() and source_tree() is None


def installed_version(directory: Path) -> str:
    """The version in an environment, "" when MeshAI is not there (or its interpreter has gone)."""
    if not (directory / "bin" / NAME).is_file() or not (directory / "bin" / "python").exists():
        return ""
    found = sorted(directory.glob(f"lib/python3*/site-packages/{NAME}-*.dist-info"))
    return found[-1].name.removeprefix(f"{NAME}-").removesuffix(".dist-info") if found else ""


def is_current(directory: Path, python: Path) -> bool:
    """Whether an environment was made from exactly what runs now."""
    try:
        made_from = (directory / STAMP).read_text(encoding="utf-8")
    except OSError:
        return False
    return bool(installed_version(directory)) and made_from == _fingerprint(python)


def check_interpreter(python: Path) -> None:
    """Raise MissingError unless compiled packages of the running interpreter work with this one."""
    answer = ask([str(python), "-c", "import sys, sysconfig; print(sysconfig.get_config_var('SOABI'))"])
    wanted = str(sysconfig.get_config_var("SOABI"))
    if answer is None or answer.code != 0:
        raise MissingError(f"{python} is no Python interpreter")
    if answer.out.strip() != wanted:
        raise MissingError(f"{python} is another kind of Python ({answer.out.strip()}); needed is one like {wanted}")


def build(directory: Path, *, python: Path | None = None, seen_as: Path | None = None) -> int:
    """Make the environment, or bring it up to date; how many packages are in it.

    ``seen_as``: where the environment will be when it runs (a root directory of its own is left out). Raises
    MissingError.
    """
    python = python or interpreter()
    check_interpreter(python)
    for link in directory.glob("bin/python*"):  # of an interpreter the system has replaced since
        link.unlink()
    must([str(python), "-m", "venv", "--without-pip", str(directory)])
    try:
        site = directory / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
        packages = closure()
        for package in packages:
            _copy_package(package, site)
        _copy_ourselves(site)
        _write_scripts(directory / "bin", (seen_as or directory) / "bin" / "python")
        for former in directory.glob("lib/python3.*"):
            if former != site.parent:
                shutil.rmtree(former)
        # As pip does: the service may not write there, and would compile everything at each start.
        ask([str(directory / "bin" / "python"), "-m", "compileall", "-q", "-j", "0", str(site)], timeout_s=900.0)
        (directory / STAMP).write_text(_fingerprint(python), encoding="utf-8")
    except OSError as error:
        raise MissingError(f"cannot write {error.filename or directory}: {error.strerror or 'error'}") from None
    return len(packages) + 1


def closure() -> list[metadata.Distribution]:
    """MeshAI's installed dependencies and theirs, extras that are installed included; MeshAI itself is not in it."""
    found: dict[str, metadata.Distribution] = {}
    waiting = list(metadata.requires(NAME) or [])
    while waiting:
        requirement = Requirement(waiting.pop())
        # An extra counts when its package is here: `pip install meshai[web]` leaves no other trace.
        extras = ("", *requirement.extras, "web", "setup", "cli")
        if requirement.marker and not any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
            continue
        try:
            package = metadata.distribution(requirement.name)
        except metadata.PackageNotFoundError:
            continue
        if _key(package.name) not in found and _key(package.name) != NAME:
            found[_key(package.name)] = package
            waiting += package.requires or []
    return [found[name] for name in sorted(found)]


def _fingerprint(python: Path) -> str:
    """Changes with the interpreter, any dependency's version, and any byte of ours."""
    digest = hashlib.sha256(f"{python}\n".encode())
    for package in closure():
        digest.update(f"{package.name} {package.version}\n".encode())
    tree = source_tree()
    roots = [Path(meshai.__file__).resolve().parent, *([tree / "systemd"] if tree is not None else [])]
    for root in roots:
        for path in sorted(root.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def _key(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _copy_package(package: metadata.Distribution, site: Path) -> None:
    for old in site.glob(f"{package.name.replace('-', '_')}-*.dist-info"):
        shutil.rmtree(old)
    for file in package.files or ():
        if ".." in file.parts or "__pycache__" in file.parts or file.is_absolute():
            continue  # scripts and caches
        source = Path(str(package.locate_file(file)))
        if source.is_file():
            _copy_file(source, site / file)


def _copy_ourselves(site: Path) -> None:
    """Our package, also from a checkout; what a former version had and this one lacks goes."""
    root = Path(meshai.__file__).resolve().parent
    fresh, old = site / f".{NAME}.new", site / f".{NAME}.old"
    for path in (fresh, old):
        shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(root, fresh, ignore=shutil.ignore_patterns("__pycache__"))
    tree = source_tree()
    if tree is not None:
        shutil.copytree(tree / "systemd", fresh / "ops" / "systemd", dirs_exist_ok=True)
    for path in (fresh, *fresh.rglob("*")):  # a checkout may be closed to others
        path.chmod(0o755 if path.is_dir() else 0o644)
    for former in site.glob(f"{NAME}-*.dist-info"):
        shutil.rmtree(former)
    described = site / f"{NAME}-{meshai.__version__}.dist-info"
    described.mkdir()
    for name in ("METADATA", "WHEEL", "entry_points.txt"):
        text = metadata.distribution(NAME).read_text(name)
        if text is not None:
            (described / name).write_text(text, encoding="utf-8")
    (described / "INSTALLER").write_text("meshai service install\n", encoding="utf-8")
    if (site / NAME).exists():
        (site / NAME).rename(old)
    fresh.rename(site / NAME)
    shutil.rmtree(old, ignore_errors=True)


def _copy_file(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = target.with_name(f".{target.name}.new")  # a library in use must not change under its user
    shutil.copyfile(source, scratch)
    scratch.chmod(0o755 if os.access(source, os.X_OK) else 0o644)
    scratch.replace(target)


def _write_scripts(directory: Path, python: Path) -> None:
    for entry in metadata.entry_points(group="console_scripts"):
        if entry.name in SCRIPTS:
            script = directory / entry.name
            script.write_text(SCRIPT.format(python=python, module=entry.module, call=entry.attr), encoding="utf-8")
            script.chmod(0o755)
