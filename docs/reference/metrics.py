"""The page of metrics and alerts: what is exposed, and what the rules of Prometheus make of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import server.monitoring
from docs.reference.tables import code, table
from server.daemon.features import FEATURES
from server.metrics import Metric
from server.monitoring.metrics import all_metrics

HEAD: Final = """\
# Metrics and alerts

What `/metrics` has, as the program lists it;
[the reference](../operations/serve.md#metrics-and-health) says how to scrape them.
"""

ALERT: Final = re.compile(
    r"- alert: (?P<name>\w+)\n"
    r" +expr: (?P<expression>.+)\n"
    r" +for: (?P<lasting>\w+)\n"
    r" +labels: \{severity: (?P<severity>\w+)\}\n"
    r" +annotations:\n"
    r' +summary: "(?P<summary>.+)"'
)


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert of ``alerts.yml``."""

    name: str
    expression: str
    lasting: str
    severity: str
    summary: str

    @property
    def metrics(self) -> set[str]:
        """The metrics of the daemon that it looks at."""
        return set(re.findall(r"\bdataspace_\w+", self.expression))


def alerts() -> list[Alert]:
    """Returns the alerts that are shipped."""
    text = (Path(server.monitoring.__file__).parent / "alerts.yml").read_text(encoding="utf-8")
    found = [Alert(**each.groupdict()) for each in ALERT.finditer(text)]
    assert len(found) == text.count("- alert: "), "alerts.yml is laid out in another way than is read here"
    return found


def exposed(metric: Metric[Any]) -> str:
    """Returns the name under which a metric is scraped."""
    return metric.name + {"counter": "_total", "info": "_info"}.get(metric.kind, "")


def page() -> str:
    """Returns the page."""
    rows = [
        (code(exposed(each)), each.kind, ", ".join(each.labels), each.help) for each in all_metrics(FEATURES)
    ]
    stated = [
        (
            f"[{each.name}](../operations/runbook.md#{each.name.lower()})",
            each.severity,
            each.lasting,
            each.summary,
        )
        for each in alerts()
    ]
    return "\n\n".join(
        [
            HEAD,
            table(("metric", "kind", "labels", "meaning"), rows),
            "## Alerts",
            table(("alert", "severity", "after", "summary"), stated),
            "",
        ]
    )
