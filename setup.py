"""The build: a wheel holds one package, ``dataspace``, with ``index``, ``relay`` and ``server`` inside it.

``build_py`` copies the four packages of the checkout and relocates the copy (``relocate.py``).  An sdist
keeps the layout of the checkout, so a wheel that is built from it is the same.  An editable install keeps it
as well, so it takes all four names.

``DATASPACE_COMPILE=1 pip wheel .`` also translates what most of a turn passes to machine code with mypyc: the
index, the kernel, codec and packets, the log, what waits for observers, and a connection.  That needs a C
compiler and mypy, and is opt-in: without the variable the wheel is pure Python for any machine.

Some files stay as they are.  Readers of text and limits of frames have classes from which others
are derived, which machine code does not allow.  mypyc fails at the handles of an owner, a mapping of
its own.  Options of an observation are made of what a client sends, before it is checked.  The library of all
compiled files is inside the package, and is loaded after each ``__init__.py``.
"""

import os
import re
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory

from setuptools import Distribution, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.command.egg_info import egg_info

sys.path.insert(0, str(Path(__file__).parent))  # a build backend does not look for modules here
from relocate import INNER, OUTER, relocate

COMPILE = bool(os.environ.get("DATASPACE_COMPILE"))
PLAIN = {"text.py", "scanner.py", "errors.py", "__init__.py"}
"""Files of those folders that are not: a compiled exception has a layout that no second base fits."""
MACHINE_CODE = (
    "index",
    "dataspace/codec.py",
    "dataspace/kernel/actions.py",
    "dataspace/kernel/bulk_assertions.py",
    "dataspace/kernel/changes.py",
    "dataspace/kernel/derivation.py",
    "dataspace/kernel/interests.py",
    "dataspace/kernel/limits.py",
    "dataspace/kernel/rule_facts.py",
    "dataspace/kernel/space.py",
    "dataspace/kernel/state.py",
    "dataspace/kernel/turns.py",
    "dataspace/transport/reactor.py",
    "dataspace/transport/sockets.py",
    "dataspace/wire/frames.py",
    "dataspace/wire/packets.py",
    "dataspace/wire/session.py",
    "dataspace/wire/slices.py",
    "dataspace/wire/windows.py",
    "relay/delivery/backlog.py",
    "relay/delivery/queue_members.py",
    "relay/delivery/gate.py",
    "relay/delivery/memory.py",
    "relay/delivery/net_changes.py",
    "relay/delivery/outbox.py",
    "relay/delivery/paced.py",
    "relay/delivery/packed.py",
    "relay/delivery/shared.py",
    "relay/journal/writer.py",
    "relay/log/chain.py",
    "relay/log/log.py",
    "relay/log/reader.py",
    "relay/log/recent.py",
    "relay/log/segments.py",
    "relay/log/writer.py",
    "relay/store/durations.py",
    "relay/store/group_writer.py",
    "relay/store/sqlite/storage.py",
    "relay/store/sqlite/tables.py",
    "relay/store/sqlite/topics.py",
    "server/config/principals.py",
    "server/connections/dispatch.py",
    "server/connections/bundles.py",
    "server/connections/connection.py",
    "server/owners/holdings.py",
    "server/owners/turn_numbers.py",
    "server/sessions/flushing.py",
    "server/sessions/memory.py",
    "server/sessions/peer.py",
    "server/sessions/peer_tasks.py",
    "server/sessions/sending.py",
    "server/spaces/turns/claim_index.py",
    "server/spaces/space.py",
)
"""Folders and files of the checkout that are compiled.

All are one group, so that calls across files stay direct.
"""

FREED = "free_list_len=1"
LEAF = "acyclic=True, free_list_len=1"
OPEN = "allow_interpreted_subclasses=True"
"""How a class is compiled.

With a list of freed objects the next one takes the memory of the last.  An acyclic one is 16 bytes smaller
and passed over by the garbage collector, so it must never be part of a cycle: a class is one if it holds
only what was complete before it, such as values, or lists of values that nothing else fills.
"""

ATTRIBUTES = {
    "index/values/values.py": {"_RecordParts": LEAF, "Record": LEAF},
    "dataspace/kernel/changes.py": {"Changes": LEAF, "Lost": LEAF, "Change": LEAF, "EpochChanges": FREED},
    "dataspace/kernel/turns.py": {"PendingTurn": LEAF},
    "relay/log/reader.py": {"LogReader": OPEN},
    "relay/log/segments.py": {"Encoded": LEAF},
    "server/owners/holdings.py": {"Usage": OPEN},
}
"""Classes of those files that are compiled in another way than most."""


class Relocated(build_py):
    """Copies the packages, and relocates the copy."""

    def run(self):
        if not self.editable_mode:
            # What an earlier build relocated is newer than its source, so it would not be copied again.
            for name in (OUTER, *INNER):
                shutil.rmtree(Path(self.build_lib, name), ignore_errors=True)
        super().run()
        if not self.editable_mode:
            relocate(Path(self.build_lib))

    def get_source_files(self):
        return [*super().get_source_files(), "relocate.py"]


class OneName(egg_info):
    """Metadata that name the one package which is installed."""

    def run(self):
        super().run()
        Path(self.egg_info, "top_level.txt").write_text(f"{OUTER}\n")


class EachFile(build_ext):
    """Compiles the files of an extension side by side."""

    def build_extensions(self):
        compile_some = self.compiler.compile

        def compile_each(sources, **options):
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                made = pool.map(lambda source: compile_some([source], **options), sources)
                return [path for paths in made for path in paths]

        self.compiler.compile = compile_each
        super().build_extensions()


class Compiled(build_ext):
    """Compiles what ``build_py`` has relocated by then.

    mypyc reads a copy under an empty ``dataspace``, because it would check all that the real one imports.
    The copy also states how its classes are compiled: what says that exists in no other file, since a program
    would need ``mypy_extensions`` for it.
    """

    def run(self):
        from mypyc.build import mypycify

        if self.editable_mode:
            raise SystemExit("an editable install is not compiled: unset DATASPACE_COMPILE, or build a wheel")
        with TemporaryDirectory() as folder:
            top = Path(folder, OUTER)
            shutil.copytree(Path(self.build_lib, OUTER), top)
            (top / "__init__.py").write_text("")
            with chdir(folder):
                for name, classes in ATTRIBUTES.items():
                    path = relocated(name)
                    path.write_text(attributed(path.read_text(encoding="utf-8"), classes), encoding="utf-8")
                self.distribution.ext_modules = mypycify(
                    ["--config-file=", "--ignore-missing-imports", *map(str, machine_code())],
                    opt_level="2",
                    debug_level="0",
                    group_name=f"{OUTER}.compiled",
                    multi_file=True,  # as one file of C they take more than twice as long
                    target_dir=str(Path(folder, "c")),
                )
                for each in self.distribution.ext_modules:
                    each.include_dirs.append(str(Path(folder, "c", OUTER)))  # as the group's name has a dot
                for path in Path("c").rglob("*.c"):
                    path.write_text(without_trashcan(path.read_text(encoding="utf-8")), encoding="utf-8")
            command = EachFile(self.distribution)  # a new one, because this one was set up before
            command.ensure_finalized()
            command.run()


def machine_code():
    """Returns the files to compile, in order, from the folder that holds what was relocated."""
    found = []
    for name in MACHINE_CODE:
        path = relocated(name)
        found += [path] if path.suffix else [each for each in path.rglob("*.py") if each.name not in PLAIN]
    return sorted(found)


def relocated(name):
    """Returns the path of a file of the checkout in the folder that holds what was relocated."""
    return Path(name) if name.startswith(f"{OUTER}/") else Path(OUTER, name)


def attributed(source, classes):
    """Returns the text of a file that states how some of its classes are compiled.

    What is stated takes the place of the two empty lines before a class, so each line keeps its number.
    """
    for name, how in classes.items():
        lines = f"if TYPE_CHECKING: from mypy_extensions import mypyc_attr\n@mypyc_attr({how})\n"
        source, count = re.subn(rf"\n\n((?:@.*\n)?class {name}\b)", rf"{lines}\1", source)
        if count != 1:
            raise SystemExit(f"there are {count} classes {name} with two empty lines before, not one")
    first = "from __future__ import annotations"
    if first not in source:
        raise SystemExit(f"a file of {', '.join(classes)} does not begin with {first!r}")
    return source.replace(first, f"{first}; from typing import TYPE_CHECKING", 1)


def without_trashcan(source):
    """Returns the text of a file in C in which an acyclic object is freed at once, however deep it is nested.

    mypyc puts each object that is nested deeper than 50 into Python's list of those to be freed later.  Up to
    Python 3.13 the links of that list are in the part that the garbage collector has before an object, and
    an acyclic object has none: the object before it in memory would be overwritten.
    """
    return re.sub(
        r"(?m)^\w+_dealloc\(.*\)\n\{\n(?:.*\n)*?\}\n",
        lambda found: found[0] if "GC_UnTrack" in found[0] else re.sub(r".*CPy_TRASHCAN_.*\n", "", found[0]),
        source,
    )


INSTALL = """You need Python 3.11 or newer:

    pip install 'dataspace-server[web,asyncio,terminal]'

"""

CHECKOUT = (
    (r"You need Python .*?(?=^## )", INSTALL),
    (r"`make venv` installs .*?(?=^`dataspace --help`)", ""),
)
"""What README.md has for a checkout, and what stands there for who installs the package."""


def long_description():
    """Returns README.md for a package index: a link to a document of the checkout becomes its text."""
    text = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
    for begin, instead in CHECKOUT:
        text, count = re.subn(begin, instead, text, flags=re.DOTALL | re.MULTILINE)
        if count != 1:
            raise SystemExit(f"README.md has {count} places like {begin!r}, not one")
    return re.sub(r"\[([^\]]*)\]\((?!https?:|#)[^)\s]*\)", r"\1", text)


class Build(Distribution):
    """What is built; a compiled wheel is for one kind of machine."""

    def has_ext_modules(self):
        return COMPILE


if __name__ == "__main__":
    commands = {"build_py": Relocated, "egg_info": OneName}
    setup(
        distclass=Build,
        long_description=long_description(),
        long_description_content_type="text/markdown",
        cmdclass=commands | ({"build_ext": Compiled} if COMPILE else {}),
    )
