"""Where providers come from: the first mirror that is named, and never the network."""

from pathlib import Path

import pytest

from tests.terraform import tool


def mirror(folder: Path) -> Path:
    (folder / tool.PROVIDER).mkdir(parents=True)
    return folder


def test_the_variable_comes_first_then_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool, "USUAL_PLACES", (str(tmp_path / "usual*"),))
    variable, named, usual = (mirror(tmp_path / name) for name in ("variable", "named", "usual-place"))
    configuration = tmp_path / "cli.tfrc"
    configuration.write_text(tool.CLI_CONFIGURATION % named)
    environment = {"TF_CLI_CONFIG_FILE": str(configuration), "TIERLOG_TERRAFORM_MIRROR": str(variable)}
    assert tool.find_mirror(environment) == variable
    assert tool.find_mirror({"TF_CLI_CONFIG_FILE": str(configuration)}) == named
    assert tool.find_mirror({"TF_CLI_CONFIG_FILE": str(tmp_path / "missing")}) == usual


def test_without_program_or_mirror_it_is_said_which(monkeypatch: pytest.MonkeyPatch) -> None:
    tool.unavailable.cache_clear()
    try:
        monkeypatch.setattr(tool, "find_mirror", lambda environment: None)
        monkeypatch.setattr(tool, "binary", lambda: "terraform")
        assert "TIERLOG_TERRAFORM_MIRROR" in str(tool.unavailable())
        tool.unavailable.cache_clear()
        monkeypatch.setattr(tool, "binary", lambda: None)
        assert tool.unavailable() == "terraform is not installed"
    finally:
        tool.unavailable.cache_clear()
