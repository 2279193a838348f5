"""Which node the command line speaks to, and as whom: what wins, and what is refused."""

from pathlib import Path

import pytest

from hot_tier.errors import SettingsError
from tierlog import access
from tierlog.access import USUAL_SERVER, Access, access_to, choose_profile, leave_note, remove_note

HERE = "127.0.0.1:8080"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    (tmp_path / "tierlog").mkdir()
    (tmp_path / "ca.pem").touch()
    choose_profile(None)
    return tmp_path


def profiles(home: Path, text: str, mode: int = 0o600) -> None:
    path = home / "tierlog" / "config.toml"
    path.write_text(text)
    path.chmod(mode)


def note(home: Path, address: str = HERE, user: str = "admin") -> None:
    leave_note(address, Access(f"https://{address}", str(home / "ca.pem"), user, "file:/p"))


def test_nothing_said_is_the_usual_server(home: Path) -> None:
    assert access_to() == Access(USUAL_SERVER)


def test_flag_then_profile_then_note(home: Path) -> None:
    note(home)
    assert (access_to().server, access_to().user) == ("https://127.0.0.1:8080", "admin")
    profiles(
        home,
        '[default]\nserver = "https://d:1"\n[prod]\nserver = ["https://a:1", "https://b:1"]\nuser="u"\npassword="p"',
    )
    assert access_to().server == "https://d:1"
    choose_profile("prod")
    assert (access_to().server, access_to().login()) == ("https://a:1,https://b:1", ("u", "p"))
    assert (access_to("https://b:1").server, access_to("https://b:1").user) == ("https://b:1", "u")
    assert access_to("https://elsewhere:1", profile="") == Access("https://elsewhere:1")


def test_a_password_goes_only_where_it_was_written_for(home: Path) -> None:
    profiles(home, '[default]\nserver = "https://d:1"\nuser = "u"\npassword = "p"\n')
    note(home)
    assert access_to("https://evil:1").user == ""
    assert access_to(f"http://{HERE}") == Access(f"http://{HERE}")
    assert access_to(f"https://{HERE}").user == access_to("https://localhost:8080").user == "admin"
    assert (access_to(HERE).server, access_to(HERE).user) == (f"https://{HERE}", "admin")
    profiles(home, '[default]\nserver = ["https://d:1", "d:2"]\nuser = "u"\npassword = "p"\n')
    with pytest.raises(SettingsError, match="would go unencrypted"):
        access_to()


def test_variables_win_as_pairs(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profiles(home, '[default]\nserver = "https://d:1"\nuser = "u"\npassword = "p"\nca = "ca.pem"\n')
    monkeypatch.setenv("TIERLOG_PASSWORD", "other")
    assert access_to().login() == ("u", "p")
    monkeypatch.setenv("TIERLOG_USER", "ada")
    assert access_to().login() == ("ada", "other")
    assert access_to().ca == str(home / "tierlog" / "ca.pem"), "beside the file that names it"
    monkeypatch.setenv("TIERLOG_CA", "mine.pem")
    assert access_to().ca == "mine.pem"


def test_a_note_whose_directory_is_gone_says_nothing(home: Path) -> None:
    note(home)
    (home / "ca.pem").unlink()
    assert access_to() == Access(USUAL_SERVER)
    (home / "ca.pem").touch()
    remove_note(HERE)
    assert access_to() == Access(USUAL_SERVER)


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ('[p]\nserver = "https://a"\nuser = "u"\npassword = "hunter2"', 0o640, "others can read"),
        ('[p]\nserver = "https://a"', 0o620, "others can change"),
        ('[p]\nserver = "https://a"\nuser = "u"', 0o600, "go together"),
        ('[p]\nserver = "https://a"\npasword = "hunter2"', 0o600, "'pasword' cannot be there"),
        ('[p]\nserver = "https://a"\nuser = 1\npassword = "hunter2"', 0o600, "'user' cannot be there"),
        ('[p]\nuser = "u"\npassword = "hunter2"', 0o600, "names no server"),
        ('p = "hunter2"', 0o600, "is no table"),
        ("[p", 0o600, "is not TOML"),
        ("[other]", 0o600, "there is no profile 'p'"),
    ],
)
def test_a_file_that_does_not_do(text: str, mode: int, said: str, home: Path) -> None:
    profiles(home, text, mode)
    choose_profile("p")
    with pytest.raises(SettingsError, match=said) as refused:
        access_to()
    assert "hunter2" not in str(refused.value)


def test_passwords_by_reference(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def login(password: str) -> str:
        profiles(home, f"[default]\nserver = 'https://d:1'\nuser = 'u'\npassword = '{password}'\n", 0o644)
        found = access_to().login()
        assert found is not None
        return found[1]

    counted = home / "counted"
    (home / "held").write_text("secret\n")
    monkeypatch.setenv("HELD", "secret")
    assert login(f"file:{home / 'held'}") == login("env:HELD") == "secret"
    command = f'command:sh -c "echo once >> {counted}; echo secret"'
    access._said.cache_clear()
    assert login(command) == login(command) == "secret"
    assert counted.read_text() == "once\n"
    for wrong, said in (("command:false", "ended with 1"), ("command:true", "nothing"), ("env:NO", "is not set")):
        with pytest.raises(SettingsError, match=said):
            login(wrong)


def test_files_that_cannot_be_used_are_named(home: Path) -> None:
    (home / "ca.pem").write_text("no certificate")
    for given in (Access(ca="/none"), Access(ca=str(home / "ca.pem")), Access(certificate="/none", key="/none")):
        with pytest.raises(SettingsError, match="cannot be used"):
            given.context()
