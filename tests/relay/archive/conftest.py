"""One log of many short lives, archived, for the tests of its states and of erasing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.relay.archive.histories import ArchivedLog


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ArchivedLog]:
    """The log of ``lived``, a range for each epoch; only to be copied."""
    from tests.relay.archive.test_states import lived  # pyarrow is asked for there

    kept = lived(tmp_path_factory.mktemp("base"))
    kept.archive()
    yield kept
    kept.close()
