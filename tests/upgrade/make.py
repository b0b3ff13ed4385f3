"""Makes the data directory that is kept of a version.

    python -m tests.upgrade.make NAME

starts the daemon of this checkout, fills it through the commands of the shell and kills it, so that the
write-ahead logs are kept as well.  Run it for each version that is released, and for each change of a format;
never make a kept one anew.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from tests.server.processes import DaemonProcess

KEPT: Final = Path(__file__).parent / "kept"

THINGS: Final = (
    'thing(1, 1.0, -7, 18446744073709551617, null, true)',
    r'thing(b"\x00\xff", "é", [1, [2]], {"k": null, 1: [1.5]})',
    "thing(@2026-01-01T00:00:00.000250Z, nested(deeper(1)), {}, [])",
    '"no record"',
)  # fmt: skip
REACH: Final = "reach($x, $y) <- road($x, $y). reach($x, $z) <- reach($x, $y), road($y, $z)."
COUNTS: Final = 12


def fill(url: str) -> None:
    """Asserts, retracts, sends, derives and publishes what ``test_kept.py`` looks for."""

    def run(*words: str, said: str = "") -> None:
        command = [sys.executable, "-m", "dataspace", *words, "--url", url]
        subprocess.run(command, check=True, input=said, text=True, stdout=subprocess.DEVNULL)

    run(
        "assert",
        "--durable",
        "roads",
        'road("a", "b")',
        'road("b", "c")',
        'road("c", "d")',
        'town("a")',
        'town("d")',
    )
    run("assert", "--durable", "things", *THINGS)
    run("rule", "add", "reach", REACH, "--durable", "roads")
    run("retract", "--durable", "roads", 'road("c", "d")')
    run("send", 'said("hello")')
    items = '6 ["harbour", 14.2]\n7 ["harbour", 15.0]\n'
    run("topic", "publish", "readings", "--durable", "--times", said=items)
    for number in range(1, COUNTS + 1):
        run("assert", "--durable", "counts", f"count({number})")


def keep(name: str) -> Path:
    """Makes ``kept/NAME.tar.xz``; raises ``FileExistsError`` if it is there."""
    place = KEPT / f"{name}.tar.xz"
    with tempfile.TemporaryDirectory() as folder, tarfile.open(place, "x:xz") as archive:
        data = Path(folder) / "data"
        daemon = DaemonProcess(data)
        daemon.start()
        try:
            fill(daemon.url)
        finally:
            daemon.kill()
        for file in sorted(data.iterdir()):
            if file.is_file() and file.name != "lock" and not file.name.endswith("-shm"):
                archive.add(file, file.name)
    return place


if __name__ == "__main__":
    print(keep(sys.argv[1]))
