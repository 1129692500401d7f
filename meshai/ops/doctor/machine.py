"""The computer: processor, Python and libraries, power, disk, clock."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from meshai.ops.doctor.base import Check, Context, fail, ok, skip, warn

PYTHONS = ((3, 11), (3, 15))
"""First supported, first not supported: as pyproject.toml says (a test compares)."""
LITTLE_BYTES, TIGHT_BYTES = 50_000_000, 500_000_000
PLAUSIBLE_TIME = 1_735_689_600
"""2025-01-01: an earlier clock was never set."""
UNDERVOLTAGE_NOW, THROTTLED_NOW, HOT_NOW, UNDERVOLTAGE_SEEN = 1 << 0, 1 << 2, 1 << 3, 1 << 16
"""Bits of ``vcgencmd get_throttled`` (Raspberry Pi documentation)."""
POWER_FIX = "use the power supply of the Pi's maker, a short cable, and a powered hub for the node"


@dataclass(frozen=True, slots=True)
class Mount:
    """The file system a directory is on."""

    device: str  # as in /sys/class/block
    kind: str
    read_only: bool


def check_processor(_ctx: Context) -> Iterator[Check]:
    """64 bits: for 32 some libraries have no ready-made packages."""
    if sys.maxsize > 2**32:
        yield ok("processor", f"{platform.machine()}, 64-bit")
    else:
        yield fail(
            "processor",
            f"{platform.machine()}, and this Python has 32 bits",
            "install the 64-bit system on a new card: Raspberry Pi OS (64-bit)",
        )


def check_python(_ctx: Context) -> Iterator[Check]:
    """Python itself, and every library within the bounds that MeshAI declares."""
    from meshai.errors import MissingError
    from meshai.radio import library

    wrong = _unfit_libraries()
    if not PYTHONS[0] <= sys.version_info[:2] < PYTHONS[1]:
        yield fail("python", f"Python {platform.python_version()} is not supported", "use Python 3.11 to 3.14")
    for name, found, wanted in wrong:
        yield fail(
            "libraries", f"{name} {found} does not fit {wanted}", f"{sys.executable} -m pip install '{name}{wanted}'"
        )
    try:
        version = library.check()
    except MissingError as error:
        yield fail("libraries", str(error), f"{sys.executable} -m pip install 'meshtastic{library.SUPPORTED}'")
        return
    if not wrong:
        yield ok("python", f"Python {platform.python_version()}, meshtastic {version}, libraries as declared")


def check_power(ctx: Context) -> Iterator[Check]:
    """A Pi that is short of power loses its node first."""
    answer = ctx.ask(["vcgencmd", "get_throttled"])
    if answer is None or answer.code != 0 or "=" not in answer.out:
        yield skip("power", "no vcgencmd here: not a Raspberry Pi, or no permission (group video)")
        return
    try:
        bits = int(answer.out.partition("=")[2].strip(), 16)
    except ValueError:
        yield skip("power", f"vcgencmd says {answer.out.strip()[:40]}")
        return
    if bits & UNDERVOLTAGE_NOW:
        yield fail("power", f"undervoltage now ({bits:#x})", POWER_FIX)
    elif bits & UNDERVOLTAGE_SEEN:
        yield warn("power", f"there was undervoltage since the start ({bits:#x})", POWER_FIX)
    elif bits & (THROTTLED_NOW | HOT_NOW):
        yield warn("power", f"the processor is too hot and slows down ({bits:#x})", "give the Pi a heat sink and air")
    else:
        yield ok("power", "no undervoltage since the start")


def check_disk(ctx: Context) -> Iterator[Check]:
    """Room, a file system that can be written, and what the card says of its health."""
    directory = _nearest(ctx.database.parent)
    try:
        usage = shutil.disk_usage(directory)
    except OSError as error:
        yield skip("disk", f"{directory}: {error.strerror}")
        return
    text = f"{usage.free / 1e9:.1f} of {usage.total / 1e9:.1f} GB free at {directory}"
    fix = "sudo apt clean; sudo journalctl --vacuum-size=100M; storage.daily_copies: 2 keeps fewer copies"
    if usage.free < LITTLE_BYTES:
        yield fail("disk", text, fix)
    elif usage.free < TIGHT_BYTES:
        yield warn("disk", text, fix)
    else:
        yield ok("disk", text)
    mount = mount_of(ctx, directory)
    if mount is not None:
        yield from _health(ctx, mount)


def check_clock(ctx: Context) -> Iterator[Check]:
    """The node gets its time from us (protocol.md §2.3); answers are dated by it."""
    if ctx.now < PLAUSIBLE_TIME:
        yield fail(
            "clock", "this computer's clock was never set", "sudo date -s '2026-01-31 12:00', or add a clock module"
        )
        return
    answer = ctx.ask(["timedatectl", "show", "--property=NTPSynchronized", "--value"])
    if answer is not None and answer.out.strip() == "no":
        yield warn(
            "clock",
            "not synchronised with the network: off-grid it drifts and starts in the past after a power cut",
            "timedatectl set-ntp true; without internet a clock module (RTC) or a GPS receiver keeps the time",
        )
        return
    synchronised = answer is not None and answer.out.strip() == "yes"
    yield ok("clock", "synchronised with the network" if synchronised else "set")


def mount_of(ctx: Context, directory: Path) -> Mount | None:
    """Where a directory is mounted from, after /proc/self/mountinfo; None when that does not say."""
    try:
        number = directory.stat().st_dev
    except OSError:
        return None
    wanted = f"{os.major(number)}:{os.minor(number)}"
    for line in reversed(ctx.read("/proc/self/mountinfo").splitlines()):
        head, _, tail = line.partition(" - ")
        fields, rest = head.split(), tail.split()
        if len(fields) > 5 and len(rest) > 2 and fields[2] == wanted:
            read_only = "ro" in fields[5].split(",") or "ro" in rest[2].split(",")
            device = ctx.at(f"/sys/dev/block/{wanted}").resolve().name
            return Mount(rest[1].rpartition("/")[2] if device == wanted else device, rest[0], read_only)
    return None


def _health(ctx: Context, mount: Mount) -> Iterator[Check]:
    if mount.read_only:
        yield fail(
            "disk",
            f"{mount.device} is mounted read-only",
            "dmesg | tail; a card that does this is worn out: replace it",
        )
        return
    sysfs = f"/sys/fs/{mount.kind}/{mount.device}"
    errors = ctx.read(f"{sysfs}/errors_count")
    if errors.isdecimal() and int(errors):
        yield warn(
            "disk",
            f"{errors} file system errors on {mount.device}",
            "sudo touch /forcefsck; sudo reboot; then back up the card",
        )
    if not mount.device.startswith("mmcblk"):
        return
    written = ctx.read(f"{sysfs}/lifetime_write_kbytes")
    seen = f", {int(written) / 1e6:.0f} GB written in its life" if written.isdecimal() else ""
    life = ctx.read(f"/sys/class/block/{mount.device.partition('p')[0]}/device/life_time").split()
    worn = max((int(value, 16) * 10 for value in life if value.startswith("0x")), default=0)
    if worn >= 90:
        yield warn("card", f"{worn} % of its life are used{seen}", "meshai backup FILE, and put in a new card soon")
    else:
        yield ok("card", f"{mount.device}{seen}; cards wear out: keep a copy elsewhere (meshai backup FILE)")


def _unfit_libraries() -> list[tuple[str, str, str]]:
    """Name, version found, range wanted, of each library outside what MeshAI declares."""
    from packaging.requirements import Requirement

    unfit = []
    for text in metadata.requires("meshai") or []:
        wanted = Requirement(text)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        try:
            found = metadata.version(wanted.name)
        except metadata.PackageNotFoundError:
            found = "(missing)"
        if found == "(missing)" or not wanted.specifier.contains(found, prereleases=True):
            unfit.append((wanted.name, found, str(wanted.specifier)))
    return unfit


def _nearest(directory: Path) -> Path:
    """The directory, or what there is of the way to it."""
    while not directory.exists() and directory != directory.parent:
        directory = directory.parent
    return directory
