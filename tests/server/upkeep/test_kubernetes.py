"""The manifests of a cluster: what they name is there, and their probes tell roles apart in real daemons."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from tests.ports import free_port

pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")
pytest.importorskip("prometheus_client", reason="the extra `metrics` is not installed")
pytest.importorskip("yaml", reason="PyYAML is not installed (`make venv`)")

import yaml  # type: ignore[import-untyped]  # it has no types

import dataspace
import server
from dataspace import Record
from server.config.model import Config
from tests.server.cluster.test_failover import SOON
from tests.server.processes import DaemonProcess, running

CERTIFICATES: Final = Path(__file__).parents[1] / "certificates"
FILE: Final = Path(server.__file__).parent / "deploy" / "kubernetes.cluster.yaml"
FOUND: Final[list[dict[str, Any]]] = list(yaml.safe_load_all(FILE.read_text()))
SERVICES: Final = {each["metadata"]["name"]: each["spec"] for each in FOUND if each["kind"] == "Service"}
(STATEFUL,) = [each["spec"] for each in FOUND if each["kind"] == "StatefulSet"]
POD: Final = STATEFUL["template"]["spec"]
(DAEMON,) = POD["containers"]
LABELS: Final = {"app.kubernetes.io/name": "dataspace"}
VARIABLES: Final = {each["name"]: each for each in DAEMON["env"]}
NAMES: Final = [f"dataspace-{number}" for number in range(3)]


def test_services_find_the_pods_and_each_pod_has_a_name() -> None:
    assert STATEFUL["template"]["metadata"]["labels"] == LABELS == STATEFUL["selector"]["matchLabels"]
    ports = {each["name"]: each["containerPort"] for each in DAEMON["ports"]}
    for name, service in SERVICES.items():
        assert service["selector"] == LABELS, name
        (port,) = service["ports"]
        assert port["port"] == ports[port["targetPort"]] == 7443
    headless = SERVICES[STATEFUL["serviceName"]]
    assert headless["clusterIP"] == "None" and headless["publishNotReadyAddresses"] is True
    advertised = VARIABLES["DATASPACE_SERVE_CLUSTER_ADVERTISE"]["value"]
    assert advertised == f"tls://$(DATASPACE_SERVE_CLUSTER_NAME).{STATEFUL['serviceName']}:7443"
    named = VARIABLES["DATASPACE_SERVE_CLUSTER_NAME"]["valueFrom"]
    assert named == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert [*VARIABLES].index("DATASPACE_SERVE_CLUSTER_NAME") == 0, "a variable refers to earlier ones"


def test_pods_do_not_go_together_and_have_the_time_to_go() -> None:
    (budget,) = [each["spec"] for each in FOUND if each["kind"] == "PodDisruptionBudget"]
    assert budget["selector"]["matchLabels"] == LABELS and budget["maxUnavailable"] == 1
    assert STATEFUL["replicas"] == 3
    rules = POD["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert [(each["topologyKey"], each["labelSelector"]["matchLabels"]) for each in rules] == [
        ("kubernetes.io/hostname", LABELS)
    ]
    stops = DAEMON["lifecycle"]["preStop"]["exec"]["command"][-1]
    within, pause = map(int, re.findall(r"--within (\d+)s && sleep (\d+)", stops)[0])
    assert within < pause and pause + Config().stop_seconds < POD["terminationGracePeriodSeconds"]


def test_secrets_are_secrets_and_each_place_is_mounted() -> None:
    password = VARIABLES["PGPASSWORD"]["valueFrom"]["secretKeyRef"]
    assert password == {"name": "dataspace-database", "key": "password"}
    volumes = {each["name"]: each for each in [*POD["volumes"], *_claims()]}
    mounted = {each["mountPath"]: volumes[each["name"]] for each in DAEMON["volumeMounts"]}
    assert len(mounted) == len(volumes)
    places = re.findall(r"/etc/[\w./-]+", " ".join(DAEMON["args"]))
    places += [str(each["value"]) for each in DAEMON["env"] if str(each.get("value", "")).startswith("/")]
    for place in places:
        (mount,) = [each for each in mounted if Path(place).is_relative_to(each)]
        assert "secret" in mounted[mount] or place == "/var/lib/dataspace"
    secrets = {each["secret"]["secretName"] for each in POD["volumes"] if "secret" in each}
    assert all(f"{each} (" in FILE.read_text() for each in secrets), "the head of the file says what is in it"


def _claims() -> Iterator[dict[str, Any]]:
    yield from [each["metadata"] for each in STATEFUL["volumeClaimTemplates"]]


def test_all_probes_but_that_for_life_ask_for_readiness() -> None:
    ports = [each["name"] for each in DAEMON["ports"]]
    for name in ("startupProbe", "readinessProbe"):
        assert DAEMON[name]["httpGet"]["port"] in ports
        assert DAEMON[name]["httpGet"]["path"].startswith("/readyz")
    assert DAEMON["livenessProbe"]["exec"]["command"][:2] == ["dataspace", "status"]


# -- as it runs ---------------------------------------------------------------------------------------


class PodDaemon:
    """A daemon with the arguments and variables of the manifest, at ports of this machine."""

    def __init__(self, name: str, store: str, folder: Path) -> None:
        self.plain, self.secure, self.admin = free_port(), free_port(), free_port()
        config = folder / "dataspace.toml"
        config.write_text("[limits]\nrequests = 64\n")
        places = {
            "/etc/dataspace/dataspace.toml": str(config),
            "/etc/dataspace-tls/tls.crt": str(CERTIFICATES / "daemon.pem"),
            "/etc/dataspace-tls/tls.key": str(CERTIFICATES / "daemon.key"),
            "tls:0.0.0.0:7443": f"tls:127.0.0.1:{self.secure}",
            "0.0.0.0:9090": f"127.0.0.1:{self.admin}",
        }
        words = [places.get(each, each) for each in DAEMON["args"]]
        data = words.index("--data")
        assert words[0] == "serve" and words[data + 1].startswith("postgresql://dataspace@")
        del words[data : data + 2]
        plain = words.index("tcp:127.0.0.1:7377")  # which the test gives, at a free port
        del words[plain - 1 : plain + 1]
        self.process = DaemonProcess(store, *words[1:])
        self.process.port = self.plain
        self.url = f"tls://localhost:{self.secure}"
        self.process.environment = {
            "DATASPACE_SERVE_CLUSTER_NAME": name,
            "DATASPACE_SERVE_CLUSTER_ADVERTISE": self.url,
            "DATASPACE_SERVE_CLUSTER_STATE": str(folder / name),
            "DATASPACE_TLS_CA": str(CERTIFICATES / "ca.pem"),
        }
        assert {*self.process.environment} | {"PGPASSWORD", "DATASPACE_TOKEN_FILE"} == {*VARIABLES}

    def probe(self, path: str) -> int:
        """Returns the status with which its admin address answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}{path}", timeout=SOON) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def run(self, words: list[str]) -> int:
        """Runs a command of the manifest, which may wait for the end of the daemon."""
        words = [each.replace("sleep 25", "true") for each in words]
        return self.popen(words).wait(SOON)

    def popen(self, words: list[str]) -> subprocess.Popen[bytes]:
        """Starts a command of the manifest."""
        program = shlex.join([sys.executable, "-m", "dataspace"])
        if words[0] == "dataspace":
            words = ["sh", "-c", shlex.join(words)]
        words = [each.replace("dataspace ", f"{program} ", 1) for each in words]
        words = [each.replace(":7377", f":{self.plain}") for each in words]
        return subprocess.Popen(words, stdout=subprocess.DEVNULL)


@pytest.mark.slow
async def test_the_probes_know_roles_and_a_pod_that_stops_hands_over(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATASPACE_SERVE_CLUSTER_LEASE", "10m")
    monkeypatch.setenv("DATASPACE_TLS_CA", str(CERTIFICATES / "ca.pem"))
    pods = [PodDaemon(name, postgres_url, tmp_path) for name in NAMES]
    leader, *followers = pods
    ready = DAEMON["readinessProbe"]["httpGet"]["path"]
    with running(*[each.process for each in pods]), trio.fail_after(SOON * 2):
        for each in pods:
            for path in (DAEMON["startupProbe"]["httpGet"]["path"], ready):
                assert await trio.to_thread.run_sync(each.probe, path) == 200
            status = await trio.to_thread.run_sync(each.probe, "/readyz?role=leader")
            assert status == (200 if each is leader else 503)
            assert await trio.to_thread.run_sync(each.run, DAEMON["livenessProbe"]["exec"]["command"]) == 0
        # A client of any pod is sent on, by the address that the leader advertises.
        async with dataspace.connect(followers[0].url, owner="map", grace=60) as space:
            await space.assert_(Record("here", 1))
            assert (await space.status())["process"] == leader.process.process.pid
            assert (
                await trio.to_thread.run_sync(leader.run, DAEMON["lifecycle"]["preStop"]["exec"]["command"])
                == 0
            )
            assert await trio.to_thread.run_sync(leader.process.wait) == 0
            async with dataspace.connect([each.url for each in followers], owner="else") as other:
                await other.assert_(Record("here", 2))
        roles = [await trio.to_thread.run_sync(each.probe, "/readyz?role=leader") for each in followers]
        assert sorted(roles) == [200, 503]
