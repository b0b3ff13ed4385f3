"""The unit, the container file and the manifests: linted where there is a linter, and their words run."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import server

FOLDER = Path(server.__file__).parent / "deploy"
CERTIFICATES = Path(__file__).parents[1] / "certificates"
REGISTRY = "registry.example"
UNIT = (FOLDER / "dataspace.service").read_text()
SERVING = {
    "dataspace.service": shlex.split(UNIT.split("ExecStart=")[1].splitlines()[0])[1:],
    **{
        name: json.loads(
            re.findall(r"(?:CMD|command:|args:) (\[\"serve\".*\])", (FOLDER / name).read_text())[0]
        )
        for name in (
            "Containerfile",
            "compose.yaml",
            "compose.cluster.yaml",
            "kubernetes.yaml",
            "kubernetes.cluster.yaml",
        )
    },
}


def linter(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed, so nothing but the commands is checked")
    return found


def run(*words: str | Path, folder: Path = FOLDER) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, words)], cwd=folder, capture_output=True, text=True, timeout=120)


@pytest.mark.slow
def test_the_unit_is_valid_and_hardened(tmp_path: Path) -> None:
    systemd_analyze = linter("systemd-analyze")
    here = tmp_path / "dataspace.service"
    here.write_text(UNIT.replace("/opt/dataspace/bin/dataspace", "/bin/true"))
    verified = run(systemd_analyze, "verify", here)
    assert (verified.returncode, verified.stderr) == (0, ""), "an unknown key is a line of stderr only"
    judged = run(systemd_analyze, "security", "--offline=true", "--threshold=15", here)
    assert judged.returncode == 0, judged.stdout[-300:]


@pytest.mark.slow
def test_the_manifests_are_put_together_by_kustomize() -> None:
    made = run(linter("kubectl"), "kustomize", ".")
    assert made.returncode == 0, made.stderr
    assert {"kind: Service", "kind: StatefulSet"} <= set(made.stdout.splitlines())
    assert f"image: {REGISTRY}/dataspace:" in made.stdout


def test_the_registry_is_named_at_one_place() -> None:
    places = [
        path.name for path in FOLDER.iterdir() for line in path.read_text().splitlines() if REGISTRY in line
    ]
    assert places == ["kustomization.yaml"]
    for name in ("kubernetes.yaml", "kubernetes.cluster.yaml", "compose.yaml", "compose.cluster.yaml"):
        images = re.findall(r" image: (\S+)", (FOLDER / name).read_text())
        assert [each for each in images if not each.startswith("postgres:")] == ["dataspace"]


def test_kubernetes_is_reached_by_tls_alone() -> None:
    for name in ("kubernetes.yaml", "kubernetes.cluster.yaml"):
        listens = [words for words in SERVING[name] if re.match(r"\w+:.*:\d+$", words)]
        assert listens == ["tls:0.0.0.0:7443", "tcp:127.0.0.1:7377"], "without TLS only within the pod"
        assert "{name: dataspace, containerPort: 7443}" in (FOLDER / name).read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("hadolint", ("Containerfile",)),
        ("check-jsonschema", ("--builtin-schema", "vendor.compose-spec", "compose.yaml")),
        ("check-jsonschema", ("--builtin-schema", "vendor.compose-spec", "compose.cluster.yaml")),
        ("kubernetes-validate", ("--strict", "kubernetes.yaml")),
        ("kubernetes-validate", ("--strict", "kubernetes.cluster.yaml")),
    ],
)
def test_other_linters_find_nothing(name: str, words: tuple[str, ...]) -> None:
    done = run(linter(name), *words)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("file", SERVING)
def test_its_command_is_understood(file: str, tmp_path: Path) -> None:
    from server.cli.main import main

    assert main([*_here(SERVING[file], tmp_path, 0), "--check"]) == 0


def test_the_settings_of_the_cluster_are_known(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from server.cli.main import main

    text = (FOLDER / "compose.cluster.yaml").read_text()
    stated = re.findall(r'(DATASPACE_SERVE_\w+): "?([^",}\n]+)', text)
    assert len({name for name, _ in stated}) == 3 and len(stated) == 7
    for name, value in stated:
        monkeypatch.setenv(name, value)
    assert main([*SERVING["compose.cluster.yaml"], "--check"]) == 0
    said = capsys.readouterr().out
    assert all(value in said for value in ("tcp://c:7377", "/var/lib/dataspace"))


@pytest.mark.slow
def test_the_commands_of_the_container_run_and_its_health_check_is_answered(tmp_path: Path) -> None:
    """Those of the container file and of Compose are the same, and Kubernetes adds a configuration."""
    assert SERVING["Containerfile"] == SERVING["compose.yaml"]
    text = (FOLDER / "Containerfile").read_text()
    health = json.loads(text.split("HEALTHCHECK")[1].split("CMD ")[1].splitlines()[0])
    for file in ("compose.yaml", "compose.cluster.yaml", "kubernetes.yaml", "kubernetes.cluster.yaml"):
        assert json.dumps(health)[1:] in (FOLDER / file).read_text(), "the same check everywhere"
    with socket.create_server(("127.0.0.1", 0)) as free, socket.create_server(("127.0.0.1", 0)) as other:
        port, secure = free.getsockname()[1], other.getsockname()[1]
    dataspace = (sys.executable, "-m", "dataspace")
    daemon = subprocess.Popen([*dataspace, *_here(SERVING["kubernetes.yaml"], tmp_path, port, secure)])
    try:
        check = [each.replace(":7377", f":{port}") for each in health[1:]]
        assert run(*dataspace, *check, "--wait", "60s").returncode == 0
        outside = ("status", "--url", f"tls://localhost:{secure}", "--tls-ca", CERTIFICATES / "ca.pem")
        assert run(*dataspace, *outside).returncode == 0
    finally:
        daemon.terminate()
        assert daemon.wait(60) == 0


def _here(words: list[str], tmp_path: Path, port: int, secure: int = 0) -> list[str]:
    """The words of a command line with this test's places in them, and nothing else changed."""
    config = tmp_path / "dataspace.toml"
    config.write_text("[log]\nkeep_for = '7d'\n")
    places = {
        "/etc/dataspace/dataspace.toml": str(config),
        "/var/lib/dataspace": str(tmp_path / "data"),
        "/etc/dataspace-tls/tls.crt": str(CERTIFICATES / "daemon.pem"),
        "/etc/dataspace-tls/tls.key": str(CERTIFICATES / "daemon.key"),
        "tcp:0.0.0.0:7377": f"tcp:127.0.0.1:{port}",
        "tcp:127.0.0.1:7377": f"tcp:127.0.0.1:{port}",
        "tls:0.0.0.0:7443": f"tls:127.0.0.1:{secure}",
    }
    return [places.get(each, each) for each in words]
