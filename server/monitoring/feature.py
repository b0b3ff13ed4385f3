"""What operators see of a daemon, as a feature of it: sessions, rates, lags, times of rules."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from server.features import DaemonTask, Feature
from server.monitoring.measures import MEASURES, Measures, measure_lag, watch_rules
from server.monitoring.sessions import session_verbs
from server.sessions.peer import PEERS

if TYPE_CHECKING:
    from server.sessions.state import DaemonState


def _tasks(daemon: DaemonState) -> Sequence[DaemonTask]:
    measures, spaces = daemon.parts[MEASURES], daemon.spaces.values
    return (
        DaemonTask("lags of the loop", partial(measure_lag, measures.loop_lag)),
        DaemonTask("rates of connections", partial(measures.rates.run, daemon.parts[PEERS].values)),
        DaemonTask("lags of readers", partial(measures.reader_lags.run, spaces)),
        DaemonTask("times of rules", partial(watch_rules, spaces, daemon.watch.rules_took)),
    )


FEATURE: Final = Feature(
    name="monitoring",
    make=lambda daemon: daemon.parts.add(MEASURES, Measures(daemon)),
    verbs=session_verbs,
    tasks=_tasks,
)
