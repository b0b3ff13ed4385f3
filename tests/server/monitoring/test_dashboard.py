"""The dashboard and the alerts name what is exposed, and each alert fires when it should and not else."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from server.monitoring import metrics
from tests.server.monitoring.conftest import Served
from tests.server.monitoring.scraping import get

HERE = Path(metrics.__file__).parent
DASHBOARD: dict[str, Any] = json.loads((HERE / "dashboard.json").read_text())
ALERTS = (HERE / "alerts.yml").read_text()
CASES = (HERE / "alerts_test.yml").read_text()
NAMED = re.compile(r"\b(?:dataspace|process)_[a-z_]+")
PROMTOOL = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not on the PATH")


def expressions() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        yield from [each["expr"] for each in panel.get("targets", ())]
    yield from [each["query"]["query"] for each in DASHBOARD["templating"]["list"] if each["type"] == "query"]
    yield from re.findall(r"^ +expr: (.*)$", ALERTS, re.MULTILINE)


async def test_every_metric_that_is_named_is_exposed(served: Served) -> None:
    text = (await get(served.admin, "/metrics")).text
    exposed = set()
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE):
        exposed |= {f"{name}_{end}" for end in ("bucket", "count", "sum")} if kind == "histogram" else {name}
    named = {name for each in expressions() for name in NAMED.findall(each)}
    assert len(named) > 40
    assert named <= exposed


async def test_every_label_that_is_chosen_by_is_exposed(served: Served) -> None:
    text = (await get(served.admin, "/metrics")).text
    labels = set(re.findall(r"[{,](\w+)=\"", text)) | {"job", "instance"}
    for each in expressions():
        chosen = re.findall(r"[{,] ?(\w+)=~?\"", each)
        grouped = [name.strip() for names in re.findall(r"by \(([^)]*)\)", each) for name in names.split(",")]
        assert {*chosen, *grouped} <= labels, each


def test_panels_have_places_and_numbers_of_their_own() -> None:
    panels = DASHBOARD["panels"]
    assert max(Counter(each["id"] for each in panels).values()) == 1
    cells: Counter[tuple[int, int]] = Counter()
    for each in panels:
        at = each["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells.update((at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"]))
    assert max(cells.values()) == 1
    assert all(each["targets"] and each["title"] for each in panels if each["type"] != "row")


def test_each_alert_has_a_case_for_both() -> None:
    alerts = re.findall(r"^ +- alert: (\w+)$", ALERTS, re.MULTILINE)
    cases = re.findall(r"^  - name: (.*)$", CASES, re.MULTILINE)
    assert len(alerts) > 10
    assert sorted(cases) == sorted(
        [f"{name} {does}" for name in alerts for does in ("fires", "does not fire")]
    )


def promtool(*words: str) -> str:
    done = subprocess.run(["promtool", *words], cwd=HERE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@PROMTOOL
def test_the_alerts_are_valid_and_behave() -> None:
    assert "SUCCESS" in promtool("check", "rules", "alerts.yml")
    assert "SUCCESS" in promtool("test", "rules", "alerts_test.yml")
