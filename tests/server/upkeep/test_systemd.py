"""The unit under a running systemd: started, reloaded, hung, killed, drained and stopped as its page says.

A Debian is made by debootstrap (a minute, from the package mirror) with the wheel in it, and booted by
systemd-nspawn; a script in it runs the commands and writes what came of each.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import server

FOLDER = Path(server.__file__).parent / "deploy"
TOP = Path(server.__file__).parents[1]
MIRROR = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")
PACKAGES = "systemd,dbus,python3,python3-venv,ca-certificates"
LACKING = [name for name in ("debootstrap", "systemd-nspawn", "chroot") if shutil.which(name) is None]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.torture,
    pytest.mark.skipif("TORTURE_ROUNDS" not in os.environ, reason="boots a system, for make torture"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root boots a system in a folder"),
    pytest.mark.skipif(bool(LACKING), reason=f"not installed: {LACKING}"),
    pytest.mark.skipif(not (TOP / "relocate.py").exists(), reason="there is no checkout to build a wheel of"),
]

SCRIPT = r"""#!/bin/bash
exec > /root/said 2>/root/traced
set -x
PATH=/opt/dataspace/bin:$PATH
of() { systemctl show dataspace --value -p $1; }
shown() { echo "$1: $(of ActiveState) $(of Result)"; }
pid() { of MainPID; }
up() { dataspace status --wait 60s >/root/status && echo "$1: answers"; }

systemctl start dataspace; shown "started $?"
of StatusText
grep -E 'CapEff|NoNewPrivs|Seccomp:' /proc/$(pid)/status
stat -c '%U %a' /var/lib/dataspace /proc/$(pid)

echo 'log_level = "warning"' >> /etc/dataspace/dataspace.toml
systemctl reload dataspace; shown "reloaded $?"
up reloaded

kill -STOP $(pid)
until [ "$(of NRestarts)" = 1 ]; do sleep 0.2; done
up "hung, and restarted by the watchdog"

kill -KILL $(pid)
until [ "$(of NRestarts)" = 2 ]; do sleep 0.2; done
up "killed, and restarted"

dataspace drain --within 1s
until [ "$(systemctl is-active dataspace)" = inactive ]; do sleep 0.2; done
shown drained

systemctl start dataspace; up "started again"
systemctl stop dataspace; shown "stopped $?"
echo 'nonsense = 1' >> /etc/dataspace/dataspace.toml
systemctl start dataspace; shown "with a wrong configuration $?"
of NRestarts
systemctl poweroff
"""

SAID = """\
started 0: active success
listening on tcp:127.0.0.1:7377
CapEff:\t0000000000000000
NoNewPrivs:\t1
Seccomp:\t2
dataspace 700
dataspace 555
reloaded 0: active success
reloaded: answers
hung, and restarted by the watchdog: answers
killed, and restarted: answers
the daemon takes no new sessions, and ends now
drained: inactive success
started again: answers
stopped 0: inactive success
with a wrong configuration 1: failed exit-code
0
"""


def run(*words: str | Path, seconds: float = 600) -> None:
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, f"{words}: {done.stdout[-2000:]}{done.stderr[-2000:]}"


def system(folder: Path) -> Path:
    """Returns a folder with a Debian in which the commands at the head of the unit were run."""
    from tests.packaging.project import build_wheel, copy_sources

    root = folder / "root"
    made = subprocess.run(
        ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", root, MIRROR],
        capture_output=True,
        text=True,
        timeout=600,
    )
    if made.returncode:
        pytest.skip(f"no Debian from {MIRROR}: {made.stdout.strip()[-200:]}")
    shutil.copy(build_wheel(copy_sources(folder / "source"), folder / "wheel"), root / "tmp")
    authorities = Path("/etc/ssl/certs/ca-certificates.crt")
    if authorities.exists():
        shutil.copy(authorities, root / "etc/ssl/certs")
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    head = (FOLDER / "dataspace.service").read_text().partition("\n[Unit]")[0]
    for line in head.splitlines():
        command = line.removeprefix("#   ").partition(" #")[0]
        if line.startswith("#   "):
            command = command.replace("install dataspace-server", "install -q /tmp/*.whl")
            run("chroot", root, "env", "PIP_CERT=/etc/ssl/certs/ca-certificates.crt", "sh", "-c", command)
    shutil.copy(FOLDER / "dataspace.service", root / "etc/systemd/system")
    sooner = root / "etc/systemd/system/dataspace.service.d"
    sooner.mkdir()
    (sooner / "sooner.conf").write_text("[Service]\nWatchdogSec=5\n")  # the unit's own is a minute
    config = root / "etc/dataspace/dataspace.toml"
    config.write_text('listen = "tcp:127.0.0.1:7377"\n')
    config.chmod(0o644)
    (root / "root/drill.sh").write_text(SCRIPT)
    (root / "etc/systemd/system/drill.service").write_text(
        "[Service]\nType=oneshot\nExecStart=/bin/bash /root/drill.sh\n"
    )
    return root


def test_the_unit_does_under_systemd_what_its_page_says(tmp_path: Path) -> None:
    root = system(tmp_path)
    booted = subprocess.run(
        [
            *("systemd-nspawn", "-q", "-D", root, "--register=no", "--keep-unit", "-b"),
            *("systemd.unit=drill.service", "systemd.wants=dbus.socket"),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    said = root / "root/said"
    if not said.exists():
        pytest.skip(f"no systemd boots here: {(booted.stderr + booted.stdout)[-300:]}")
    assert said.read_text() == SAID, (root / "root/traced").read_text()[-3000:]
