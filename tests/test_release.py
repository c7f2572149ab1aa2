"""What a release consists of: its version, change log, workflow and packages."""

import importlib.metadata
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

import mt

ROOT = Path(__file__).resolve().parents[1]
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text("utf-8"))
STEPS = [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]


def test_the_version_stands_in_one_place() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", mt.__version__)
    assert importlib.metadata.version("mt") == mt.__version__
    assert "version" not in yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))


def test_the_change_log_begins_with_what_is_not_released_and_has_this_version() -> None:
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)
    assert headings[0] == "Unreleased"
    assert headings[1] == mt.__version__


def test_the_actions_of_the_workflow_are_pinned_by_commit() -> None:
    actions = [step["uses"] for step in STEPS if "uses" in step]
    assert actions
    for action in actions:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action), action


def test_each_job_is_one_script_that_contributing_names() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    commands = [step["run"] for step in STEPS if "run" in step]
    scripts = {re.search(r"scripts/ci/\w+\.sh", command)[0] for command in commands}  # type: ignore[index]
    assert len(commands) == len(WORKFLOW["jobs"])
    assert scripts == {f"scripts/ci/{path.name}" for path in (ROOT / "scripts/ci").glob("*.sh")}
    for script in scripts:
        assert f"`{script}`" in page
        assert os.access(ROOT / script, os.X_OK), f"{script}: not executable"


@pytest.mark.slow
@pytest.mark.network
def test_the_wheel_works_in_a_clean_environment_and_an_empty_folder() -> None:
    done = subprocess.run([ROOT / "scripts/ci/wheel.sh"], stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].startswith("wheel: translated, evaluated and trained")
