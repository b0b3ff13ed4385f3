"""What is built and installed works beside an ``index.py``, ``relay`` and ``server`` of another project."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_string
from pathlib import Path

import pytest

from relocate import INNER, OUTER, modules, rewrite_files
from tests.packaging.project import SOURCES, TOP, Project, build_sdist, build_wheel, copy_sources, run

pytestmark = [pytest.mark.slow, pytest.mark.spark]
"""One test starts Spark; the others are where it is, so that all of them have one build."""

PACKAGED = (
    "*.py",
    "*.md",
    "*.rules",
    "deploy/*",
    "static/*",
    "inspector/*.*",
    "inspector/views/*.*",
    "wire/*.txt",
    "monitoring/*.json",
    "monitoring/*.yml",
)
"""Files that a wheel has."""

COOK = """
from dataspace.actors import Turn, capture, record

Order = record("order", "dish")
Served = record("served", "dish", "by")


def cook(turn: Turn, name: str) -> None:
    turn.during(Order(capture()))(lambda turn, dish: turn.assert_(Served(dish, name)))
"""

CONFIGURATION = """
listen = ["tcp:127.0.0.1:0"]
data = "data"

[[actors]]
run = "kitchen:cook"
name = "hosted"
arguments = ["hosted"]

[[actors]]
run = "kitchen:cook"
name = "isolated"
arguments = ["isolated"]
isolate = true
"""

QUERY = """
import sys

import dataspace.spark
from pyspark.sql import SparkSession

url, checkpoint = sys.argv[1:]
spark = dataspace.spark.session(SparkSession.builder.master("local[2]"))
spark.sparkContext.setLogLevel("OFF")
orders = dataspace.spark.frame(spark, "order($dish:str)", url=url)
print("batch", sorted(row.dish for row in orders.collect()))
changes = dataspace.spark.frame(spark, "order($dish:str)", url=url, stream=True)
writer = changes.select("dish").writeStream.format("memory").queryName("seen")
writer = writer.option("checkpointLocation", checkpoint)
query = writer.start()
query.processAllAvailable()
query.stop()
print("stream", sorted(row.dish for row in spark.sql("select * from seen").collect()))
spark.stop()
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_sources(tmp_path_factory.mktemp("source") / "dataspace")


@pytest.fixture(scope="module")
def sdist(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_sdist(source, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that is built from the sdist."""
    return build_wheel(sdist, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def project(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = Project(tmp_path_factory.mktemp("hostile"), wheel)
    (made.folder / "kitchen.py").write_text(COOK)
    (made.folder / "dataspace.toml").write_text(CONFIGURATION)
    (made.folder / "query.py").write_text(QUERY)
    return made


def contents(wheel: Path) -> dict[str, int]:
    """The checksum of each file in a wheel."""
    return {each.filename: each.CRC for each in zipfile.ZipFile(wheel).infolist()}


# -- what is built ------------------------------------------------------------------------------------------


def test_the_sdist_has_the_layout_of_the_checkout(sdist: Path, tmp_path: Path) -> None:
    shutil.unpack_archive(sdist, tmp_path, filter="data")
    (top,) = tmp_path.iterdir()
    for name in SOURCES:
        assert (top / name).exists(), f"{name} is not in the sdist"
    for path in [path for name in (OUTER, *INNER) for path in (TOP / name).rglob("*.py")]:
        assert (top / path.relative_to(TOP)).read_bytes() == path.read_bytes()


def test_a_wheel_is_the_same_from_a_folder_as_from_an_sdist(
    source: Path, wheel: Path, tmp_path: Path
) -> None:
    earlier = source / "build" / "lib" / OUTER / "left_by_an_earlier_build.py"
    earlier.parent.mkdir(parents=True)
    earlier.touch()
    assert contents(build_wheel(source, tmp_path)) == contents(wheel)


def test_the_wheel_holds_one_package_with_all_that_belongs_to_it(wheel: Path) -> None:
    files = contents(wheel)
    code = {name for name in files if ".dist-info/" not in name}
    assert {name.split("/")[0] for name in files} - {f"{OUTER}_server-0.1.0.dist-info"} == {OUTER}
    assert [name for name in code if name.endswith("py.typed")] == [f"{OUTER}/py.typed"]
    expected = {
        path.relative_to(TOP).as_posix()
        for name in (OUTER, *INNER)
        for pattern in PACKAGED
        for path in (TOP / name).rglob(pattern)
    }
    assert code - {f"{OUTER}/py.typed"} == {
        name if name.startswith(f"{OUTER}/") else f"{OUTER}/{name}" for name in expected
    }


def test_its_metadata_name_one_package_and_a_command_of_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (names,) = [name for name in archive.namelist() if name.endswith("/top_level.txt")]
        assert archive.read(names).decode().split() == [OUTER]
        (points,) = [name for name in archive.namelist() if name.endswith("/entry_points.txt")]
        assert f"{OUTER} = {OUTER}.__main__:main" in archive.read(points).decode()


def test_its_metadata_are_ready_for_a_package_index(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        stated = message_from_string(archive.read(name).decode())
    assert (stated["Name"], stated["License-Expression"]) == ("dataspace-server", "Apache-2.0")
    assert len(stated["Summary"]) <= 512 and stated["Author"] and stated["Keywords"]
    classifiers = stated.get_all("Classifier", [])
    assert {each.split(" :: ")[0] for each in classifiers} >= {
        "Development Status",
        "Intended Audience",
        "Operating System",
        "Programming Language",
        "Topic",
        "Typing",
    }
    assert not [each for each in classifiers if each.startswith("License")], "the expression has it"
    assert stated["Description-Content-Type"] == "text/markdown"
    text = stated.get_payload()
    assert isinstance(text, str) and text.startswith("# dataspace")
    assert not re.findall(r"\]\((?!https?:|#)[^)]*\)", text), "a package index has no such documents"
    begin = text.partition("Working on it")[0]
    assert "pip install 'dataspace-server[" in begin and "make venv" not in begin


def test_nothing_installed_imports_an_inner_package_by_its_name_in_the_checkout(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith(".py"):
                lines = archive.read(name).decode().splitlines()
                wrong = [
                    line
                    for line in lines
                    if line.lstrip().startswith(tuple(f"from {each}." for each in INNER))
                ]
                assert not wrong, name


def test_it_can_be_removed_and_installed_again(wheel: Path, tmp_path: Path) -> None:
    project = Project(tmp_path, wheel)
    assert (project.site / OUTER).is_dir()
    project.uninstall()
    left = [path.name for path in project.site.iterdir()]
    assert left == ["dependencies.pth"]
    project.install(wheel)
    assert project.run("-m", OUTER, "--version").strip()


# -- in a project with such names ---------------------------------------------------------------------


@pytest.mark.parametrize("name", INNER)
def test_the_project_has_modules_that_raise(project: Project, name: str) -> None:
    with pytest.raises(AssertionError, match=f"{name} of another project was imported"):
        project.run("-c", f"import {name}")


def test_every_installed_module_imports_there(project: Project) -> None:
    names = [f"{OUTER}.{name}" for name in modules(TOP) if not name.endswith("__main__")]
    code = f"import importlib, sys; [importlib.import_module(name) for name in {sorted(names)}]"
    assert project.run("-c", f"{code}; print([n for n in {INNER} if n in sys.modules])").strip() == "[]"


def test_the_command_says_its_version_by_either_name(project: Project) -> None:
    script = project.python.with_name("dataspace")
    version = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["version"]
    assert run(str(script), "--version", cwd=project.folder) == project.run("-m", OUTER, "--version")
    assert version in project.run("-m", OUTER, "--version")


@contextmanager
def daemon(project: Project) -> Iterator[str]:
    """A daemon of the installed package with the actors of the project; its address."""
    command = [str(project.python), "-m", OUTER, "serve", "--config", "dataspace.toml"]
    with subprocess.Popen(
        command, cwd=project.folder, env=project.variables, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None  # as asked for
            line = process.stdout.readline()
            assert "listening on tcp:" in line, line
            yield "tcp://" + line.split("tcp:")[1].split(",")[0].strip()
        finally:
            process.terminate()
            process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.fixture(scope="module")
def address(project: Project) -> Iterator[str]:
    with daemon(project) as url:
        yield url


@pytest.fixture(scope="module")
def order(project: Project, address: str) -> Iterator[str]:
    """A fact that a client of its own asserts, and the address of its daemon."""
    holder = subprocess.Popen(
        [project.python, "-m", OUTER, "assert", "--url", address, 'order("soup")'],
        cwd=project.folder,
        env=project.variables,
    )
    try:
        yield address
    finally:
        holder.terminate()
        holder.wait(60)


def test_facts_are_observed_and_hosted_and_isolated_actors_answer(project: Project, order: str) -> None:
    told = project.run("-m", OUTER, "observe", "--url", order, "served($dish, $by)", "--count", "2")
    assert 'dish="soup" by="hosted"' in told
    assert 'dish="soup" by="isolated"' in told
    actors = project.run("-m", OUTER, "actors", "--url", order)
    assert "isolated in process" in actors
    assert "0 crashes" in actors


def test_workers_of_spark_import_from_the_folder_of_the_package(
    project: Project, wheel: Path, tmp_path: Path
) -> None:
    """Also where that is not called site-packages, as after ``pip install --target``."""
    target = tmp_path / "anywhere"
    options = ["-qq", "--no-index", "--no-deps", "--no-compile", "--target", str(target)]
    run(sys.executable, "-m", "pip", "install", *options, str(wheel))
    code = f"""
import os, sys
sys.path.insert(0, {str(target)!r})
import dataspace.spark
from pyspark.sql import SparkSession
options = dataspace.spark.configure(SparkSession.builder)._options
print(os.environ["PYTHONPATH"], options["spark.executorEnv.PYTHONPATH"])
"""
    assert project.run("-c", code).split() == [str(target), str(target)]


def test_spark_reads_and_follows(project: Project, order: str, tmp_path: Path) -> None:
    project.run("-m", OUTER, "observe", "--url", order, "order($dish)", "--count", "1")
    told = project.run("query.py", order, str(tmp_path / "checkpoint"))
    assert "batch ['soup']" in told
    assert "stream ['soup']" in told


# -- for type checkers ---------------------------------------------------------------------------------


def test_its_types_are_seen(project: Project) -> None:
    shutil.copytree(TOP / "tests" / "typing", project.folder / "typing_of_users")
    rewrite_files(project.folder / "typing_of_users", modules(TOP))
    options = [
        "--strict",
        "--python-executable",
        str(project.python),
        "--cache-dir",
        str(project.folder / "cache"),
    ]
    told = run(sys.executable, "-m", "mypy", *options, "typing_of_users", cwd=project.folder)
    assert "Success: no issues found in 2 source files" in told
