"""`python -m e2e.lighthouse`: Lighthouse's scores of the page in Chromium, for a desktop and a phone.

npx runs npm's lighthouse, or give `--command` another way to start it. Exits with 1 below 95 in accessibility
or best practices. Reports are written to `build/lighthouse/`.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

from e2e.browser import ROOT, find_chromium, serve_site

COMMAND = "npx --yes lighthouse@12.8.2"
REPORTS = ROOT / "build" / "lighthouse"
CATEGORIES = ("accessibility", "best-practices")
LEAST = 95
FLAGS = "--headless=new --no-sandbox --disable-background-networking"


def run(command: str, address: str, device: str) -> dict[str, float]:
    """Scores from 0 to 100 by category, with failed audits on standard error."""
    report = REPORTS / f"{device}.json"
    options = [
        f"--only-categories={','.join(CATEGORIES)}",
        "--output=json",
        f"--output-path={report}",
        "--quiet",
    ]
    if device == "desktop":
        options.append("--preset=desktop")
    environment = os.environ | {"CHROME_PATH": find_chromium()}
    call = [*shlex.split(command), address, *options, f"--chrome-flags={FLAGS}"]
    subprocess.run(call, check=True, env=environment)
    found = json.loads(report.read_text("utf-8"))
    for name, audit in found["audits"].items():
        if audit["score"] is not None and audit["score"] < 1:
            print(f"{device}: {name}: {audit['title']}", file=sys.stderr)
    return {name: 100 * found["categories"][name]["score"] for name in CATEGORIES}


def main() -> None:
    """Command line of `python -m e2e.lighthouse`."""
    parser = argparse.ArgumentParser(description="Lighthouse's scores of the built page.")
    parser.add_argument("site", nargs="?", type=Path, default=ROOT / "build" / "web")
    parser.add_argument("--command", default=COMMAND, help=f"starts Lighthouse (default: {COMMAND})")
    options = parser.parse_args()
    REPORTS.mkdir(parents=True, exist_ok=True)
    with serve_site(options.site) as address:
        query = f"{address}?backend=cpu&threads=1"
        scores = {device: run(options.command, query, device) for device in ("desktop", "phone")}
    print(json.dumps(scores, indent=1))
    sys.exit(any(score < LEAST for found in scores.values() for score in found.values()))


if __name__ == "__main__":
    main()
