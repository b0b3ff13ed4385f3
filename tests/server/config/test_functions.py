"""A function of the configuration that cannot be called as declared is named before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from dataspace.errors import UsageError
from dataspace.rules.language.functions import Function
from server.cli.main import main
from server.config.file import functions_of
from server.config.functions import load_functions
from server.config.hosted import HostedFunction


def test_they_are_named_after_their_modules_or_as_stated() -> None:
    stated = HostedFunction("os.path:basename", ("str",), "str", name="file.name")
    found = load_functions([HostedFunction("os.path:dirname", ("str",), "str"), stated])
    assert list(found) == ["path.dirname", "file.name"]
    assert found["file.name"].apply(lambda _: None, "a/b") == "b"
    assert isinstance(found["path.dirname"], Function)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (HostedFunction("math", ("int",), "int"), "functions are named module:function, got 'math'"),
        (HostedFunction("nowhere.m:f", ("int",), "int"), "function nowhere.m:f: No module named 'nowhere'"),
        (HostedFunction("math:sine", ("int",), "int"), "module math has no function 'sine'"),
        (HostedFunction("math:pi", ("int",), "int"), "module math has no function 'pi'"),
        (HostedFunction("math:sqrt", ("real",), "float"), "function math.sqrt: no class 'real', which are"),
        (
            HostedFunction("math:sqrt", ("int", "int"), "float"),
            r"function math.sqrt is declared with 2 arguments, but math:sqrt takes \(x, /\)",
        ),
        (HostedFunction("math:sqrt", ("int",), "float", "sqrt"), "two words with a point between them"),
        (HostedFunction("math:sqrt", ("int",), "float", "now.f"), "now is a word of rules"),
        (HostedFunction("math:sqrt", (), "float"), "math.sqrt takes nothing"),
        (HostedFunction("math:sqrt", ("int",), "float", cost=0), "costs 0 units of work: from 1 to"),
    ],
)
def test_what_cannot_be_called_is_refused(function: HostedFunction, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        load_functions([function])


def test_two_of_one_name_are_refused() -> None:
    with pytest.raises(UsageError, match=r"two functions are named math\.sqrt"):
        load_functions([HostedFunction("math:sqrt", ("int",), "float")] * 2)


def test_a_module_that_raises_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_functions.py").write_text("1 / 0\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match="broken_functions:f: ZeroDivisionError: division by zero"):
        load_functions([HostedFunction("broken_functions:f", ("int",), "int")])


SQRT = '[[functions]]\nrun = "math:sqrt"\ntakes = ["number"]\ngives = "float"\n'


def test_a_check_reads_rules_with_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "daemon.toml"
    rule = '[[rules]]\nname = "r"\ntext = "p(math.sqrt($x)) <- v($x)."\n'
    file.write_text(SQRT + rule, encoding="utf-8")
    assert main(["serve", "--config", str(file), "--check"]) == 0
    assert "[[functions]]  # " in (told := capsys.readouterr().out) and 'name = "math.sqrt"' in told
    file.write_text(SQRT + rule.replace("sqrt(", "sqrrt("), encoding="utf-8")
    assert main(["serve", "--config", str(file), "--check"]) == 2
    assert "no function math.sqrrt is registered here: did you mean math.sqrt?" in capsys.readouterr().err
    file.write_text(SQRT.replace("sqrt", "sine"), encoding="utf-8")
    assert main(["serve", "--config", str(file), "--check"]) == 2
    assert "module math has no function 'sine'" in capsys.readouterr().err
    file.write_text(SQRT + "uses = 3\n", encoding="utf-8")
    assert main(["serve", "--config", str(file), "--check"]) == 2
    assert "functions[0].uses: no such setting" in capsys.readouterr().err


def test_a_file_gives_them_alone(tmp_path: Path) -> None:
    file = tmp_path / "daemon.toml"
    file.write_text(SQRT + '[tls]\ncertificate = "none.pem"\n', encoding="utf-8")
    assert list(functions_of(file)) == ["math.sqrt"]
    file.write_text("functions = 3\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"tables \[\[functions\]\] are needed, not 3"):
        functions_of(file)
