"""The Dockerfile and the script that runs its lines where no container can be built."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from script_helpers import SCRIPTS, load_script

ROOT = SCRIPTS.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")
RULES = (ROOT / ".dockerignore").read_text("utf-8")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_script(monkeypatch, "check_container")


@pytest.mark.parametrize(
    ("path", "ignored"),
    [
        ("mt/serve.py", False),
        ("mt/serving/page/index.html", False),
        ("mt/everyday/model.safetensors", False),
        ("pyproject.toml", False),
        ("LICENSE", False),
        ("README.md", True),
        ("tests/conftest.py", True),
        ("scripts/mt/x.py", True),
        ("outputs/x/model.safetensors", True),
        (".git/config", True),
        ("mt/__pycache__/serve.cpython-311.pyc", True),
        ("mt/serving/__pycache__/app.cpython-311.pyc", True),
        ("mt/.everyday.old/model.safetensors", True),
        ("mt/serving/.keys", True),
    ],
)
def test_the_image_gets_the_package_and_nothing_else(
    script: ModuleType, path: str, ignored: bool
) -> None:
    assert script.is_ignored(path, RULES) is ignored


def test_rules_are_read_as_docker_reads_them(script: ModuleType) -> None:
    rules = "# a comment\na*\n!a/keep\n/docs/**/*.md\nb?\n"
    cases = {"a/keep": False, "a/other": True, "ab.txt": True, "x/a": False, "docs/x.md": True}
    cases |= {"docs/x/y.md": True, "docs/x.py": False, "b1": True, "b12": False, "# a comment": 0}
    assert {path: script.is_ignored(path, rules) for path in cases} == cases


def test_the_lines_mean_what_docker_makes_of_them(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = tmp_path / "context"
    for name in ("src/a.txt", "src/deep/b.txt", "src/__pycache__/c.txt", "one.txt"):
        (context / name).parent.mkdir(parents=True, exist_ok=True)
        (context / name).write_text(name)
    (context / ".dockerignore").write_text("**/__pycache__\n")
    monkeypatch.setattr(script, "ROOT", context)
    image = script.Image(tmp_path / "image", {"GIVEN": "given"})
    text = """# a comment
        FROM python
        ARG GIVEN=default
        ARG OTHER=default
        WORKDIR /app
        ENV A=1 B="two words" C=/app/own D=/application
        COPY src code
        COPY one.txt ./
        RUN --mount=type=tmpfs,target=/x echo "$GIVEN $OTHER $B" \\
            > said.txt && cat one.txt >> said.txt
        USER 65534:65534
        HEALTHCHECK --interval=1s CMD ["true"]
        CMD ["serve", "it"]
    """
    for instruction in script.read_dockerfile(text):
        image.apply(*instruction)
    made = {p.relative_to(tmp_path).as_posix() for p in image.folder.rglob("*") if p.is_file()}
    app = ("code/a.txt", "code/deep/b.txt", "one.txt", "said.txt")
    assert made == {f"image/app/{name}" for name in app}
    assert (image.work / "said.txt").read_text() == "given default two words\none.txt"
    assert (image.environment["C"], image.environment["D"]) == (f"{image.work}/own", "/application")
    assert (image.command, image.health, image.user) == (["serve", "it"], ["true"], "65534:65534")
    assert image.unprivileged(["true"])[:3] == ["setpriv", "--reuid=65534", "--regid=65534"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("RUN exit 3", "RUN exit 3: failed"),
        ("COPY nowhere ./", "COPY nowhere: there is no such file"),
        ("VOLUME /data", "VOLUME /data: this script does not know"),
    ],
)
def test_a_line_that_fails_is_told(
    script: ModuleType, tmp_path: Path, line: str, message: str
) -> None:
    image = script.Image(tmp_path, {})
    [instruction] = script.read_dockerfile(line + "\n")
    with pytest.raises(ValueError, match=message):
        image.apply(*instruction)


def test_a_container_of_root_is_refused(script: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="would run as root"):
        script.Image(tmp_path, {}).unprivileged(["true"])


def test_the_dockerfile_fits_the_project(script: ModuleType) -> None:
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    [torch] = re.findall(r'^  "(torch[^"]*)",$', project, re.M)
    assert f"'{torch}'" in DOCKERFILE
    instructions = dict(script.read_dockerfile(DOCKERFILE))
    assert instructions["CMD"] == '["python", "-m", "mt.serve", "--host", "0.0.0.0"]'
    assert instructions["EXPOSE"] == "8000"
    assert "/health/live" in instructions["HEALTHCHECK"]
    assert instructions["USER"] not in ("0", "root")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_lines_of_the_dockerfile_run() -> None:
    if os.getuid() != 0 or not all(map(shutil.which, ("unshare", "nsenter", "setpriv", "ip"))):
        pytest.skip("needs root, util-linux and iproute2")
    python = shutil.which("python3", path="/usr/local/bin:/usr/bin") or sys.executable
    own = ["--build-arg", "INSTALL_TORCH=pip install", "--build-arg", "APT=true"]
    command = [sys.executable, SCRIPTS / "check_container.py", "--python", python, *own]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for text in ("healthy after", "Wo wohnen Sie?", "user 65534 capabilities 0000", "status 0"):
        assert text in done.stdout
