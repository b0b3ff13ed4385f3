"""The scripts complete every command and option that there is, in the shells that read them."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from server.cli.main import main
from server.cli.once.completion import SHELLS, levels
from server.cli.table import ROWS


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


def test_every_command_and_option_of_the_parser_is_known() -> None:
    found = {level.path: level for level in levels()}
    assert {name for name, _ in found["dataspace"].commands} == {row.command for row in ROWS}
    assert all(said for name, said in found["dataspace"].commands), "each has a line of help"
    assert "dataspace rule why-not" in found
    (policy,) = [flag for flag in found["dataspace observe"].flags if "--policy" in flag.names]
    assert policy.choices == ("conflate", "wait", "fail", "drop")
    assert ("bash", "") in found["dataspace completion"].commands


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_has_all_of_them(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = script(shell, capsys)
    for level in levels():
        assert level.path in text
        for name in [name for name, _ in level.commands] + [n for flag in level.flags for n in flag.names]:
            assert (name if shell != "fish" else name.lstrip("-")) in text


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_reads_its_script(shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    file = tmp_path / "script"
    file.write_text(script(shell, capsys))
    done = subprocess.run([shell, "-n", str(file)], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")


CASES = [
    (["ru"], {"rule"}),
    (["rule", "w"], {"why", "why-not"}),
    (["rule", "why", "--js"], {"--json"}),
    (["observe", "--policy", ""], {"conflate", "drop", "fail", "wait"}),
    (["observe", "p($x)", "--po"], {"--policy"}),
    (["--help", "status", "--js"], {"--json"}),
    (["send", "--space", ""], set()),
    (["completion", ""], {"bash", "fish", "zsh"}),
]


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(("words", "wanted"), CASES, ids=[" ".join(words) for words, _ in CASES])
def test_bash_completes(
    words: list[str], wanted: set[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "script"
    line = ["dataspace", *words]
    asked = f"COMP_WORDS=({shlex.join(line)}); COMP_CWORD={len(words)}; _dataspace; echo ${{COMPREPLY[@]}}"
    file.write_text(f"{script('bash', capsys)}\n{asked}\n")
    done = subprocess.run(["bash", str(file)], capture_output=True, text=True, timeout=30)
    assert done.stderr == ""
    assert wanted <= set(done.stdout.split())
    if not words[-1].startswith("-") and words != ["completion", ""]:
        assert set(done.stdout.split()) == wanted


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "script"
    file.write_text(script("fish", capsys))
    for words, wanted in CASES:
        asked = f"source {shlex.quote(str(file))}; complete -C {shlex.quote(' '.join(['dataspace', *words]))}"
        done = subprocess.run(["fish", "-c", asked], capture_output=True, text=True, timeout=30)
        assert done.stderr == ""
        assert wanted <= {each.split("\t")[0] for each in done.stdout.splitlines()}
