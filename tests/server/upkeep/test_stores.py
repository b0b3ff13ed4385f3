"""A backup goes to servers, S3 (moto) and SFTP (OpenSSH), through kills, and not with wrong credentials.

The backends are not in ``requirements.lock``: `make torture` puts those of ``stores.txt`` into
``.venv/stores``.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from getpass import getuser
from pathlib import Path
from random import Random

import pytest

from tests.ports import free_port
from tests.server.processes import DaemonProcess
from tests.server.upkeep.test_copies import ended, facts_at, loaded

STORES = Path(sys.prefix) / "stores"
ROUNDS = int(os.environ.get("TORTURE_ROUNDS") or 0)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.torture,
    pytest.mark.skipif("TORTURE_ROUNDS" not in os.environ, reason="servers and kills, for make torture"),
    pytest.mark.skipif(not (STORES / "ready").exists(), reason="no .venv/stores: make .venv/stores/ready"),
]

ACCOUNT = """
import boto3, json, sys
client = lambda name: boto3.client(name, endpoint_url=sys.argv[1], region_name="us-east-1",
    aws_access_key_id="nobody", aws_secret_access_key="nothing")
iam = client("iam")
iam.create_user(UserName="backup")
allowed = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
iam.put_user_policy(UserName="backup", PolicyName="s3",
    PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [allowed]}))
client("s3").create_bucket(Bucket="bucket")
key = iam.create_access_key(UserName="backup")["AccessKey"]
print(key["AccessKeyId"], key["SecretAccessKey"])
"""


@dataclass(frozen=True)
class Place:
    """A URL of a running server, the variables with which it is reached, and others that it refuses."""

    url: str
    right: dict[str, str]
    wrong: dict[str, str]

    def run(
        self, *words: object, fault: str = "", seconds: float = 120, variables: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs the command, for some seconds at most if it does not end before."""
        with subprocess.Popen(
            [sys.executable, "-m", "dataspace", *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": path(), "DATASPACE_FAULT": fault} | (variables or self.right),
        ) as it:
            try:
                said, complained = it.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                it.send_signal(signal.SIGKILL)
                said, complained = it.communicate()
        return subprocess.CompletedProcess([], it.returncode, said, complained)


def path() -> str:
    """The path of programs that need the backends: what these tests are imported from, and those."""
    return os.pathsep.join([str(STORES), str(Path(__file__).parents[3])])


@contextmanager
def server(*words: object, port: int, **variables: str) -> Iterator[None]:
    """Runs a server until the block ends, which begins when it listens.

    What it says goes to a file: a pipe that nobody reads would fill, and the server wait for ever.
    """
    with (
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen(
            [*map(str, words)], env=os.environ | variables, stdout=subprocess.DEVNULL, stderr=said, text=True
        ) as it,
    ):
        try:
            until = time.monotonic() + 60
            while True:
                if it.poll() is not None or time.monotonic() > until:
                    said.seek(0)
                    raise AssertionError(said.read())
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    time.sleep(0.05)
            yield
        finally:
            it.kill()


@contextmanager
def s3(folder: Path) -> Iterator[Place]:
    """S3 with one account; the first four requests, which make it, need none."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    words = (sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", port)
    with server(*words, port=port, PYTHONPATH=str(STORES), INITIAL_NO_AUTH_ACTION_COUNT="4"):
        made = subprocess.run(
            [sys.executable, "-c", ACCOUNT, address],
            env=os.environ | {"PYTHONPATH": str(STORES)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert made.returncode == 0, made.stderr
        key, secret = made.stdout.split()
        right = {
            "FSSPEC_S3_ENDPOINT_URL": address,
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        wrong = right | {"AWS_SECRET_ACCESS_KEY": "wrong"}
        yield Place("s3://bucket/daemons/ds", right, wrong)


@contextmanager
def sftp(folder: Path) -> Iterator[Place]:
    """SFTP of OpenSSH, with keys of its own, as the user of these tests."""
    found = shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin")
    if found is None:
        pytest.skip("sshd is not installed (Debian: apt-get install openssh-server)")
    ssh, port = folder / "ssh", free_port()
    ssh.mkdir(mode=0o700)
    for name in ("host", "backup", "stranger"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", ssh / name], check=True)
    (ssh / "allowed").write_text((ssh / "backup.pub").read_text())
    host = " ".join((ssh / "host.pub").read_text().split()[:2])
    (ssh / "known").write_text(f"[127.0.0.1]:{port} {host}\n")
    (ssh / "config").write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {ssh}/host\nAuthorizedKeysFile {ssh}/allowed\n"
        f"PidFile {ssh}/pid\nSubsystem sftp internal-sftp\nStrictModes no\nUsePAM no\n"
        "PasswordAuthentication no\nKbdInteractiveAuthentication no\n"
    )
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # without which OpenSSH of root does not start
    (folder / "store").mkdir()
    # What an operator has in ~/.config/fsspec/*.json.
    right = {"FSSPEC_SFTP_KNOWN_HOSTS": f"{ssh}/known", "FSSPEC_SFTP_CLIENT_KEYS": f"{ssh}/backup"}
    with server(found, "-D", "-e", "-f", ssh / "config", port=port):
        url = f"sftp://{getuser()}@127.0.0.1:{port}{folder}/store"
        yield Place(url, right, right | {"FSSPEC_SFTP_CLIENT_KEYS": f"{ssh}/stranger"})


@pytest.fixture(params=[s3, sftp], ids=["s3", "sftp"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with request.param(tmp_path) as made:
        yield made


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    it = DaemonProcess(tmp_path / "data")
    it.start()
    try:
        yield it
    finally:
        it.kill()


def test_a_busy_daemon_is_backed_up_to_a_store_and_restored_from_it(
    place: Place, daemon: DaemonProcess, tmp_path: Path
) -> None:
    via, random = tmp_path / "via", Random(11)
    words = ("backup", place.url, "--data", daemon.data, "--via", via)
    with loaded(daemon.url):
        refused = place.run(*words, variables=place.wrong)
        assert refused.returncode == 1 and "PermissionError" in refused.stderr, refused.stderr
        assert not via.exists() and not via.with_name("via.partial").exists(), "nothing was copied"
        for point in ("push-block:1", "push-before-manifest:1"):
            killed = place.run(*words, fault=point)
            assert f"fault reached: {point[:-2]}" in killed.stderr, killed.stderr
        for number in range(2 + ROUNDS):
            place.run(*words, seconds=random.uniform(0.5, 3))
            done = place.run(*words)
            assert done.returncode == 0 and f"{place.url} is whole" in done.stdout, done.stderr
            epoch, target = ended(via).epoch, tmp_path / f"restored{number}"
            killed = place.run("restore", place.url, target, fault="fetch-block:1")
            assert "fault reached: fetch-block" in killed.stderr, killed.stderr
            done = place.run("restore", place.url, target)
            assert done.returncode == 0, done.stderr
            assert facts_at(target, epoch) == facts_at(daemon.data, epoch)


def test_a_store_that_does_not_answer_is_named(place: Place, tmp_path: Path) -> None:
    port = free_port()
    url = re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{port}", place.url)
    gone = place.right | {"FSSPEC_S3_ENDPOINT_URL": f"http://127.0.0.1:{port}"}
    done = place.run("restore", url, tmp_path / "restored", variables=gone)
    assert done.returncode == 1 and "dataspace: cannot" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
