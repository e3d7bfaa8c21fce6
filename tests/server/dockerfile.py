"""Tries deploy/Dockerfile without Docker: `python -m tests.server.dockerfile [--wheel FILE]`.

Its pip lines run in a fresh virtual environment in a temporary folder, from a wheel that is built here, or
from `--wheel`. Then its entry point starts with its variables, without a checkout on the path, and its health
check runs against it. Left out: the base image, `useradd` and `USER`, which need root and a container.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
LEFT_OUT = ("useradd",)
WAIT_S = 60


def instructions() -> Iterator[tuple[str, str]]:
    """The instructions and their words; continued lines are joined, comments are left out."""
    text = re.sub(r"^\s*#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)
    for line in re.sub(r"\s*\\\n\s*", " ", text).splitlines():
        if line.strip():
            name, _, words = line.partition(" ")
            yield name, words.strip()


def variables() -> dict[str, str]:
    """The variables of ENV."""
    words = " ".join(words for name, words in instructions() if name == "ENV")
    return dict(re.findall(r"(\w+)=(\S+)", words))


def here(text: str, folder: Path) -> str:
    """A line of the image as a line of this machine: its folders are below `folder`."""
    return text.replace("/opt/camelid", f"{folder}/opt").replace("/var/lib/camelid", f"{folder}/lib")


def run_lines(folder: Path, wheel: Path) -> None:
    """Runs the RUN lines, with the wheel's folder for the context's."""
    package = next(words for name, words in instructions() if name == "ARG").partition("=")[2].strip('"')
    for line in (words for name, words in instructions() if name == "RUN"):
        if any(word in line for word in LEFT_OUT):
            print(f"left out: {line}")
            continue
        command = re.sub(r"--mount=\S+ ", "", here(line, folder)).replace("/context/dist", str(wheel.parent))
        print(f"+ {command}", flush=True)
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**os.environ, "PACKAGE": package, "PATH": path}
        subprocess.run(["sh", "-ec", command], check=True, env=environment, cwd=folder)


def serve(folder: Path) -> None:
    """Starts the entry point, waits until the health check passes, asks once, and stops it."""
    by_name = dict(instructions())
    own = {name: here(value, folder) for name, value in variables().items()}
    own["PATH"] = own["PATH"].replace("$PATH", os.environ["PATH"])
    environment = {**own, "HOME": str(folder), "CAMELID_SERVE_API_KEYS": "k"}
    entry, check = json.loads(by_name["ENTRYPOINT"]), by_name["HEALTHCHECK"].partition("CMD ")[2]
    program = subprocess.run(["sh", "-c", f"command -v {entry[0]}"], env=environment, capture_output=True)
    (folder / "lib").mkdir(exist_ok=True)
    process = subprocess.Popen(
        [program.stdout.decode().strip(), *entry[1:]], env=environment, cwd=folder / "lib"
    )
    try:
        end = time.monotonic() + WAIT_S
        while subprocess.run(json.loads(check), env=environment, capture_output=True).returncode:
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit("the health check never passed")
            time.sleep(0.2)
        print("health check passed")
        ask(environment)
    finally:
        process.terminate()
        code = process.wait(45)
    print(f"stopped with {code}")


def ask(environment: dict[str, str]) -> None:
    """One request with the key."""
    port = environment["CAMELID_SERVE_PORT"]
    code = (
        "import json, urllib.request as u\n"
        "asked = {'messages': [{'role': 'user', 'content': 'What is 12 plus 30?'}]}\n"
        f"r = u.Request('http://127.0.0.1:{port}/v1/chat/completions', json.dumps(asked).encode(),"
        " {'authorization': 'Bearer k'})\n"
        "print(json.load(u.urlopen(r, timeout=30))['choices'][0]['message']['content'])\n"
    )
    subprocess.run(["python", "-c", code], check=True, env=environment)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--wheel", type=Path, help="Default: one is built, with this machine's kernels.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = options.wheel
        if wheel is None:
            build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")]
            subprocess.run(build, check=True, cwd=ROOT)
            (wheel,) = (folder / "dist").glob("*.whl")
        run_lines(folder, wheel.resolve())
        serve(folder)


if __name__ == "__main__":
    main()
