"""Checks the Dockerfile where no container can be built: runs its lines in a clean folder.

A fresh virtual environment stands for the image of FROM. COPY obeys .dockerignore, RUN runs with
the environment of ARG and ENV. Then the server is started as a container would be with
``docker run --read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges``: as the user
of USER, without capabilities, as process 1 of namespaces of its own, on a file system that nobody
can write to except /tmp, without a network. It must become healthy, translate, and end with status
0 at SIGTERM. Needs root and Linux (util-linux, iproute2), some minutes and 2 GB of /var/tmp.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from mt.utils import console

ROOT = Path(__file__).resolve().parents[1]
# Root's part in a namespace; the file system is made read-only where this is possible.
ISOLATE = """
ip link set lo up
mount --make-rprivate /
mount -t tmpfs tmpfs /tmp
while read -r _ place _; do
  case $place in /tmp|/proc*|/sys*|/dev*) ;; *) mount -o remount,bind,ro "$place" ;; esac
done < /proc/self/mounts
exec "$@"
"""
TRANSLATE = """
import json, os, pathlib, platform, urllib.request
from mt.inference.native.library import library
is_used = library() is not None and not os.path.exists(os.environ["MT_CACHE"] + "/native")
if platform.machine() == "x86_64" and not is_used:
    raise SystemExit("the C++ that was compiled with the image is not used")
form = b"q=Where+do+you+live%3F&source=en&target=de"
address = "http://127.0.0.1:8000/translate"
print(json.load(urllib.request.urlopen(address, form, timeout=20))["translatedText"])
pathlib.Path("/tmp/written").write_text("/tmp can be written to")
capabilities = open("/proc/self/status").read().split("CapEff:")[1].split()[0]
print("user", os.getuid(), "capabilities", capabilities)
for folder in (os.getcwd(), "/var/tmp"):
    try:
        pathlib.Path(folder, "written").write_text("")
    except OSError as error:
        print(folder, error.strerror)
    else:
        raise SystemExit(folder + " can be written to")
"""


def read_dockerfile(text: str) -> list[tuple[str, str]]:
    """The instructions, each its first word and the rest."""
    lines = re.sub(r"^\s*#.*\n", "", text, flags=re.M).replace("\\\n", " ").splitlines()
    return [(words[0], words[1].strip()) for line in lines if (words := line.split(None, 1))]


def is_ignored(path: str, rules: str) -> bool:
    """Whether .dockerignore keeps a path out: the last rule that fits it or a folder above it."""
    ignored = False
    above = [path, *map(str, list(Path(path).parents)[:-1])]
    for rule in rules.splitlines():
        pattern = rule.strip().removeprefix("!").strip("/")
        if not pattern or pattern.startswith("#"):
            continue
        tokens = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
        parts = {"**/": "(.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
        expression = "".join(parts.get(token, re.escape(token)) for token in tokens)
        if any(re.fullmatch(expression, folder) for folder in above):
            ignored = not rule.strip().startswith("!")
    return ignored


def copy_context(context: Path, source: str, target: Path) -> None:
    """COPY of a file, or of the content of a folder, without what .dockerignore keeps out."""
    rules = (context / ".dockerignore").read_text()
    begin = context / source
    files = sorted(begin.rglob("*")) if begin.is_dir() else [begin]
    copied = 0
    for file in files:
        if file.is_file() and not is_ignored(file.relative_to(context).as_posix(), rules):
            into = target / file.relative_to(begin) if begin.is_dir() else target / file.name
            into.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, into)
            copied += 1
    if not copied:
        raise ValueError(f"COPY {source}: there is no such file in the context")


class Image:
    """What the lines up to now have made of a clean folder."""

    def __init__(self, folder: Path, arguments: dict[str, str]) -> None:
        self.folder = folder
        self.arguments = arguments  # of --build-arg
        self.workdir = ""  # inside the container
        python = folder / "python" / "bin"
        self.environment = {"PATH": f"{python}:/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
        self.build = {name: value for name, value in os.environ.items() if name[:4] == "PIP_"}
        self.user = "0:0"
        self.command: list[str] = []
        self.health: list[str] = []

    @property
    def work(self) -> Path:
        """Where its WORKDIR is here."""
        return self.folder / self.workdir.strip("/")

    def apply(self, name: str, value: str) -> None:
        """One line. Raises ValueError for one that is not understood or fails."""
        if name == "ARG":
            variable, _, default = value.partition("=")
            self.build[variable] = self.arguments.get(variable, default.strip('"'))
        elif name == "ENV":
            for word in shlex.split(value):
                variable, _, content = word.partition("=")
                if self.workdir and content.startswith(f"{self.workdir}/"):
                    content = f"{self.work}{content.removeprefix(self.workdir)}"
                self.environment[variable] = content
        elif name == "WORKDIR":
            self.workdir = value
            self.work.mkdir(parents=True, exist_ok=True)
        elif name == "COPY":
            *sources, target = value.split()
            for source in sources:
                copy_context(ROOT, source, self.work / target)
        elif name == "RUN":
            environment = self.environment | self.build
            value = re.sub(r"^(--\S+\s+)+", "", value)  # a --mount is Docker's
            if subprocess.run(["sh", "-c", value], cwd=self.work, env=environment).returncode:
                raise ValueError(f"RUN {value}: failed")
        elif name == "USER":
            self.user = value
        elif name == "HEALTHCHECK":
            self.health = json.loads(value.partition("CMD")[2])
        elif name == "CMD":
            self.command = json.loads(value)
        elif name not in ("FROM", "EXPOSE"):
            raise ValueError(f"{name} {value}: this script does not know the instruction")

    def unprivileged(self, command: Sequence[str]) -> list[str]:
        """The command as the image's user, without capabilities, in the image's environment."""
        user, _, group = self.user.partition(":")
        if user in ("0", "root"):
            raise ValueError("USER: the container would run as root")
        drop = ["--clear-groups", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        return ["setpriv", f"--reuid={user}", f"--regid={group}", *drop,
                "env", "-i", "-C", str(self.work), *variables, *command]  # fmt: skip


def start(image: Image) -> tuple[subprocess.Popen[bytes], int]:
    """The container, and its first process's number outside of it."""
    own = ["unshare", "--mount", "--net", "--ipc", "--pid", "--fork", "--mount-proc"]
    isolated = ["sh", "-euc", ISOLATE, "sh", *image.unprivileged(image.command)]
    container = subprocess.Popen([*own, *isolated])
    children = Path(f"/proc/{container.pid}/task/{container.pid}/children")
    for _ in range(100):
        if container.poll() is None and (pids := children.read_text().split()):
            return container, int(pids[0])
        time.sleep(0.05)
    raise ValueError("the container did not start")


def succeeds(image: Image, first: int, command: Sequence[str], quiet: bool = False) -> bool:
    """Whether a command inside the container ends with status 0, as of ``docker exec``."""
    inside = ["nsenter", f"--target={first}", "--mount", "--net", "--ipc", "--pid"]
    output = subprocess.DEVNULL if quiet else None
    command = [*inside, *image.unprivileged(command)]
    return subprocess.run(command, stdout=output, stderr=output).returncode == 0


def check(image: Image) -> None:
    """Start the container, wait until it is healthy, translate, stop it. Raises ValueError."""
    begin = time.monotonic()
    container, first = start(image)
    try:
        while not succeeds(image, first, image.health, quiet=True):
            if container.poll() is not None or time.monotonic() > begin + 60:
                raise ValueError("HEALTHCHECK: the container did not become healthy")
            time.sleep(0.2)
        print(f"healthy after {time.monotonic() - begin:.1f} s", flush=True)
        if not succeeds(image, first, ["python", "-c", TRANSLATE]):
            raise ValueError("the container does not translate as it should")
        os.kill(first, signal.SIGTERM)
        status = container.wait(60)
        print(f"SIGTERM: status {status}")
        if status:
            raise ValueError(f"SIGTERM: the container ended with status {status}")
    finally:
        if container.poll() is None:
            os.kill(first, signal.SIGKILL)
            container.wait()


def run(args: argparse.Namespace) -> None:
    if os.getuid() != 0:
        raise ValueError("only root can start the server as another user: run it with sudo")
    arguments = dict(argument.partition("=")[::2] for argument in args.build_arg)
    with tempfile.TemporaryDirectory(prefix="mt-container-", dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        print(f"instead of the image of FROM: a virtual environment of {args.python}", flush=True)
        environment = [args.python, "-m", "venv", str(folder / "python")]
        if subprocess.run(environment).returncode:
            raise ValueError(f"--python {args.python}: it cannot make a virtual environment")
        image = Image(folder, arguments)
        for instruction in read_dockerfile((ROOT / "Dockerfile").read_text()):
            print(" ".join(instruction), flush=True)
            image.apply(*instruction)
        check(image)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    add = parser.add_argument
    add("--build-arg", action="append", default=[], metavar="NAME=VALUE", help="of an ARG line")
    add("--python", default=sys.executable, help="one that every user may run (default: this one)")
    args = parser.parse_args(argv)
    return console.exit_status("check_container.py", lambda: run(args))


if __name__ == "__main__":
    sys.exit(main())
