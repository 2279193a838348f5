"""Terraform for tests: on a copy of `terraform/`, with providers from a mirror on this machine.

The network is never asked. The mirror is the first of: `TIERLOG_TERRAFORM_MIRROR`, what an existing CLI configuration
names, the usual places. Where there is no program or no mirror, `unavailable()` says so: tests are skipped for that.

One command runs at a time, over all test processes: each takes some 600 MB. Commands share one process of the provider:
each would start several of its own, and use more than twice the CPU.
"""

import fcntl
import functools
import glob
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tierlog.process import end_with_parent

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "terraform"
MODULES = sorted(folder.name for folder in (SOURCE / "modules").iterdir())
EXAMPLES = sorted(folder.name for folder in (SOURCE / "examples").iterdir())
FOLDERS = [f"modules/{name}" for name in MODULES] + [f"examples/{name}" for name in EXAMPLES]

PROVIDER = Path("registry.terraform.io", "hashicorp", "aws")
# Where Terraform itself looks; images for builds often bring a mirror in a folder of the last two.
USUAL_PLACES = (
    "~/.terraform.d/plugins",
    "~/.local/share/terraform/plugins",
    "/usr/local/share/terraform/plugins",
    "/usr/share/terraform/plugins",
    "/usr/local/share/*",
    "/opt/*",
)


CLI_CONFIGURATION = """
provider_installation {
  filesystem_mirror {
    path = "%s"
  }
}
"""


ADDRESS = re.compile(r"TF_REATTACH_PROVIDERS='(.*)'")
"""What the provider prints when it is told to wait for commands."""


class Failed(AssertionError):
    """A command ended with an error; carries all it wrote."""


def binary() -> str | None:
    return shutil.which("terraform")


def named_by_configuration(environment: Mapping[str, str]) -> list[str]:
    """Mirrors that the user's own CLI configuration names."""
    path = Path(environment.get("TF_CLI_CONFIG_FILE", "~/.terraformrc")).expanduser()
    if not path.is_file():
        return []
    return re.findall(r'filesystem_mirror\s*\{[^}]*?path\s*=\s*"([^"]+)"', path.read_text())


def find_mirror(environment: Mapping[str, str]) -> Path | None:
    named = [environment[name] for name in ("TIERLOG_TERRAFORM_MIRROR",) if environment.get(name)]
    usual = [folder for pattern in USUAL_PLACES for folder in sorted(glob.glob(os.path.expanduser(pattern)))]
    candidates = [*named, *named_by_configuration(environment), *usual]
    return next((Path(folder) for folder in candidates if (Path(folder) / PROVIDER).is_dir()), None)


@functools.cache
def unavailable() -> str | None:
    """Why nothing can be run here; None if it can."""
    if binary() is None:
        return "terraform is not installed"
    if find_mirror(os.environ) is None:
        return f"no provider mirror here: set TIERLOG_TERRAFORM_MIRROR to a folder that holds {PROVIDER}"
    return None


@contextmanager
def one_at_a_time() -> Iterator[None]:
    with open(Path(tempfile.gettempdir(), f"tierlog-terraform-{os.getuid()}.lock"), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@dataclass
class Terraform:
    """A copy of `terraform/`; `folder` arguments are such as `modules/bucket`."""

    home: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        self.tree = self.home / "terraform"
        shutil.copytree(SOURCE, self.tree, ignore=shutil.ignore_patterns(".terraform*", "*.tfstate*"))
        configuration = self.home / "cli.tfrc"
        configuration.write_text(CLI_CONFIGURATION % find_mirror(os.environ))
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TF_", "AWS_"))}
        self.environment = {
            **kept,
            "TF_CLI_CONFIG_FILE": str(configuration),
            "TF_IN_AUTOMATION": "1",
            "CHECKPOINT_DISABLE": "1",
            **self.environment,
        }

    @contextmanager
    def with_provider(self) -> Iterator["Terraform"]:
        """Runs the provider until the end: all commands use it."""
        mirror = find_mirror(os.environ)
        assert mirror is not None
        [program] = (mirror / PROVIDER).glob("*/*/terraform-provider-aws*")
        with open(self.home / "provider.log", "wb") as log:
            provider = subprocess.Popen(
                [program, "-debug"],
                stdout=subprocess.PIPE,
                stderr=log,
                env=self.environment,
                text=True,
                preexec_fn=end_with_parent,
            )
        try:
            assert provider.stdout is not None
            told = (ADDRESS.search(line) for line in provider.stdout)
            found = next((each for each in told if each), None)
            assert found is not None, (self.home / "provider.log").read_text()
            self.environment["TF_REATTACH_PROVIDERS"] = found[1]
            yield self
        finally:
            provider.kill()
            provider.wait()

    def run(self, folder: str, *arguments: str, codes: Sequence[int] = (0,)) -> str:
        command = binary()
        assert command is not None
        with one_at_a_time():
            done = subprocess.run(
                [command, *arguments],
                cwd=self.tree / folder,
                env=self.environment,
                capture_output=True,
                text=True,
                timeout=600,
            )
        if done.returncode not in codes:
            raise Failed(
                f"{' '.join(arguments)} in {folder} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
            )
        return done.stdout

    def init(self, folder: str) -> None:
        if not (self.tree / folder / ".terraform").exists():
            self.run(folder, "init", "-backend=false", "-input=false", "-no-color")

    def plan(self, folder: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """The plan as Terraform's JSON."""
        self.write_values(folder, values)
        self.init(folder)
        self.run(folder, "plan", "-input=false", "-no-color", "-out=it.tfplan")
        plan: dict[str, Any] = json.loads(self.run(folder, "show", "-json", "it.tfplan"))
        return plan

    def refusals(self, folder: str, values: Mapping[str, Any]) -> list[str]:
        """What the rules of the variables say to these values."""
        self.write_values(folder, values)
        self.init(folder)
        lines = self.run(folder, "plan", "-input=false", "-json", "-refresh=false", codes=(1,)).splitlines()
        found = [json.loads(line).get("diagnostic") for line in lines if line.startswith("{")]
        said = [" ".join(each["detail"].split()) for each in found if each and each["severity"] == "error"]
        return [each for each in said if "This was checked by the validation rule" in each]

    def write_values(self, folder: str, values: Mapping[str, Any]) -> None:
        (self.tree / folder / "values.auto.tfvars.json").write_text(json.dumps(values))


def resources(plan: Mapping[str, Any], module: Mapping[str, Any] | None = None) -> Iterator[dict[str, Any]]:
    """Every resource that is to be made: address, type, values."""
    module = plan["planned_values"]["root_module"] if module is None else module
    yield from (each for each in module.get("resources", []) if each["mode"] == "managed")
    for child in module.get("child_modules", []):
        yield from resources(plan, child)
