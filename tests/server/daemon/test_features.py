"""Features add to a daemon beside each other: nothing of one takes the place of another's."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path

from relay.log.log import Log
from relay.space_registers import space_registers
from server.cluster.homes import home_of
from server.config.model import Config
from server.connections.dispatch import SERVED
from server.daemon.daemon import Daemon
from server.daemon.features import FEATURES
from server.monitoring.metrics import all_metrics
from server.topics.part import TOPICS


async def test_no_two_features_have_one_verb_row_or_metric(tmp_path: Path) -> None:
    config = Config((), tmp_path)
    with closing(Log.open(tmp_path, registers=space_registers)) as log:
        daemon = Daemon(config, [(each, log) for each in config.all_spaces()], home_of(config))
        with closing(daemon.parts[TOPICS].durable.writer.journal), closing(daemon.main.leading.staging):
            names = Counter[str](["status", "drain"])
            names.update(name for feature in FEATURES for name in feature.verbs(daemon))
            assert set(names) == set(daemon.parts[SERVED].verbs)
            rows = Counter(name for each in FEATURES for name in each.status(daemon, daemon.main))
            metrics = Counter(each.name for each in all_metrics(FEATURES))
            heard = Counter[object](key for each in FEATURES for key in (*each.streams, *each.packets))
            for counted in (names, rows, metrics, heard, Counter(each.name for each in FEATURES)):
                assert set(counted.values()) == {1}, counted
