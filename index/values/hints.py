"""Hints: what to write instead of a thing that is no value, for those that people often have.

It is apart from values because it is about everything that they are not.

Always: it looks at classes only, so that nothing of the thing itself runs.
"""

from __future__ import annotations

from typing import Final

BY_CLASS: Final = {
    "enum.Enum": "give its .value",
    "builtins.set": "sets have no order: give sorted(…)",
    "builtins.frozenset": "sets have no order: give sorted(…)",
    "builtins.bytearray": "give bytes(…)",
    "builtins.memoryview": "give bytes(…)",
    "numpy.ndarray": "give its .tolist()",
    "numpy.generic": "give its .item()",
    "pandas._libs.tslibs.timestamps.Timestamp": "give its .to_pydatetime(), with a zone",
    "pandas.Timestamp": "give its .to_pydatetime(), with a zone",
    "datetime.datetime": "give a plain datetime, with a zone",
    "datetime.date": "give its .isoformat()",
    "datetime.time": "give its .isoformat()",
    "datetime.timedelta": "give its .total_seconds()",
    "decimal.Decimal": "give str(…) or float(…)",
    "fractions.Fraction": "give str(…) or float(…)",
    "uuid.UUID": "give str(…)",
    "pathlib.PurePath": "give str(…)",
    "builtins.complex": "give a tuple of its parts",
    "builtins.str": "give a plain str(…)",
    "builtins.int": "give a plain int(…)",
    "builtins.float": "give a plain float(…)",
    "builtins.bytes": "give plain bytes(…)",
    "builtins.tuple": "give a plain tuple(…)",
    "builtins.list": "give a plain list(…)",
    "builtins.dict": "give a plain dict(…)",
}


def hint(kind: type) -> str:
    """What to give instead of a thing of this class, or nothing.

    >>> hint(set), hint(type)
    ('; sets have no order: give sorted(…)', '')
    """
    classes = type.mro(kind) if kind is not type else []
    names = [f"{each.__module__}.{each.__qualname__}" for each in classes]
    for found in "enum.Enum", "numpy.generic", *names:  # some of them are numbers and text as well
        if found in names and found in BY_CLASS:
            return f"; {BY_CLASS[found]}"
    if hasattr(kind, "__dataclass_fields__"):
        return f"; give a record of its fields, Record({kind.__name__!r}, *dataclasses.astuple(…))"
    return ""
