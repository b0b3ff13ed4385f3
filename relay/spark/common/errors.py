"""Errors: what a user of Spark sees of an error of ours is its sentence, not our stack.

Spark takes the whole traceback of what a reader or writer raises to the driver and puts it at the head of its
own exception.  Our errors name the found value and the allowed ones; the frames of this package, up to
twenty, come before that and do not help the user who gave an option.  So whatever Spark calls lets go of
them.

Always: class and text of an error stay as they are; foreign errors, and an ``InternalError``, which is to be
reported, keep their frames.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import NoReturn, ParamSpec, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from dataspace.errors import DataspaceError, InternalError
from relay.spark.common.versions import ReadLimit, SupportsTriggerAvailableNow

P = ParamSpec("P")
T = TypeVar("T")


def plainly(called: Callable[P, T]) -> Callable[P, T]:
    """Something that Spark calls, whose errors come without our frames."""

    @wraps(called)  # Spark looks at the parameters of a reader's methods
    def call(*args: P.args, **options: P.kwargs) -> T:
        try:
            return called(*args, **options)
        except InternalError:
            raise
        except DataspaceError as error:
            raise error.with_traceback(None) from None

    return call


def plain_rows(rows: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """The same for what hands on rows, whose errors come while they are taken."""

    @wraps(rows)
    def taken(*args: P.args, **options: P.kwargs) -> Iterator[T]:
        try:
            yield from rows(*args, **options)
        except InternalError:
            raise
        except DataspaceError as error:
            raise error.with_traceback(None) from None

    return taken


class NoStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream that cannot be: whatever Spark asks first is answered with the error that says why.

    Raised while a reader is made, the error would be covered up: Spark's runner goes on to stop the reader
    that it has not got, and ends with ``cannot access local variable 'reader'``.
    """

    def __init__(self, error: DataspaceError) -> None:
        self._error = error

    def _fail(self) -> NoReturn:
        raise self._error.with_traceback(None)

    def prepareForTriggerAvailableNow(self) -> NoReturn:
        self._fail()

    def getDefaultReadLimit(self) -> ReadLimit:
        self._fail()

    def initialOffset(self) -> NoReturn:
        self._fail()

    def latestOffset(self, start: object = None, limit: object = None) -> NoReturn:
        self._fail()

    def partitions(self, start: object, end: object) -> NoReturn:
        self._fail()

    def read(self, partition: InputPartition) -> NoReturn:
        self._fail()
