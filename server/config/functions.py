"""Functions of the host that the configuration registers for rules, and code that it names.

Always: a function that cannot be called as declared ends the start of the daemon, with its name.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from time import perf_counter_ns
from typing import Any

from dataspace.errors import UsageError
from dataspace.rules.language.hosted import Functions, host_function
from server.config.hosted import HostedFunction


def load_functions(settings: Iterable[HostedFunction]) -> Functions:
    """Returns the functions that rules may call, by name; imports their modules.

    Raises ``UsageError`` for a function that is not there, or not as declared.
    """
    found = {}
    for function in settings:
        if function.title in found:
            raise UsageError(f"two functions are named {function.title}: rename one")
        run = imported(function.run, "function")
        try:
            found[function.title] = host_function(
                function.title,
                run,
                function.takes,
                function.gives,
                cost=function.cost,
                longest=function.longest,
                clock=perf_counter_ns,
            )
        except UsageError as error:
            raise UsageError(f"function {error}") from None
    return found


def imported(name: str, what: str) -> Callable[..., Any]:
    """Returns what ``module:function`` names; ``what`` says for messages what it is.

    Modules in the current directory are found, as with ``python -m``.

    Raises ``UsageError`` if there is none, or its module cannot be imported.
    """
    module, function = named(name, what)
    try:
        found = getattr(importlib.import_module(module), function, None)
    except ImportError as error:
        raise UsageError(f"{what} {name}: {error}") from error
    except Exception as error:  # code of the module, which the error names
        raise UsageError(f"{what} {name}: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise UsageError(f"{what} {name}: module {module} has no function {function!r}")
    return found  # type: ignore[no-any-return]  # callable, as just checked


def named(name: str, what: str) -> tuple[str, str]:
    """Returns the module and the function of a name; modules in the current directory are found from now
    on."""
    module, colon, function = name.partition(":")
    if not (module and colon and function):
        raise UsageError(f"{what}s are named module:function, got {name!r}")
    if "" not in sys.path:
        sys.path.insert(0, "")
    return module, function
