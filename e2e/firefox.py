"""Firefox, driven by WebDriver BiDi through firefox.mjs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from tests.support.node_host import need_node

from e2e.browser import ROOT
from e2e.visit import SCREENS

NAMES = ("firefox-esr", "firefox")
DRIVER = Path(__file__).with_name("firefox.mjs")
STATE = "() => ['ready', 'failed'].includes(window.camelid?.state) && window.camelid.state"
ASK = "(prompt) => window.camelid.ask(prompt)"
LOAD_S = 300
Value: TypeAlias = Any


def find_firefox() -> str:
    """Path of Firefox; skips the test with a hint if Firefox or its driver is not installed."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("no Firefox: run .ci/system-packages test")
    if not (ROOT / "tests" / "npm" / "node_modules" / "puppeteer-core").is_dir():
        pytest.skip("no puppeteer-core: run .ci/setup test")
    return found


class Firefox:
    """A headless Firefox. Commands are those of firefox.mjs; each raises AssertionError if it fails."""

    def __init__(self, driver: subprocess.Popen[str]) -> None:
        self._driver = driver

    def __call__(self, command: str, *given: Value) -> Value:
        assert self._driver.stdin and self._driver.stdout
        self._driver.stdin.write(json.dumps([command, *given]) + "\n")
        self._driver.stdin.flush()
        line = self._driver.stdout.readline()
        assert line, "Firefox's driver has ended"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer["value"]

    def open(self, url: str, *, same: bool = False) -> None:
        """Opens an address in a new profile, or in the last one."""
        self("open", url, same)

    def evaluate(self, source: str, given: Value = None) -> Value:
        return self("evaluate", source, given)

    def wait(self, source: str, given: Value = None, seconds: float = 60) -> Value:
        """Waits until a function returns a true value."""
        return self("wait", source, given, seconds)

    def text(self, selector: str) -> str:
        """The visible text of the first element."""
        return self.evaluate("(selector) => document.querySelector(selector).innerText", selector)

    def ready(self) -> None:
        """Waits until the model is loaded; raises AssertionError with the page's problem if that fails."""
        state = self.wait(STATE, seconds=LOAD_S)
        assert state == "ready", self.text("#problem")

    def ask(self, prompt: str) -> dict[str, Value]:
        """Answer through window.camelid: {text, token_ids, finish_reason, ...}."""
        return self.evaluate(ASK, prompt)

    def screen(self, name: str) -> None:
        SCREENS.mkdir(parents=True, exist_ok=True)
        self("screen", str(SCREENS / f"firefox-{name}.png"))


@contextmanager
def open_firefox(**preferences: bool | int) -> Iterator[Firefox]:
    """A headless Firefox; `preferences` of about:config have `__` for a dot and `_` for a hyphen."""
    names = {name.replace("__", ".").replace("_", "-"): value for name, value in preferences.items()}
    command = [need_node(), "--no-warnings", str(DRIVER), find_firefox(), json.dumps(names)]
    environment = os.environ | software_vulkan()
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as driver:
        try:
            yield Firefox(driver)
        finally:
            assert driver.stdin
            driver.stdin.close()  # the driver ends Firefox, then itself


def software_vulkan() -> dict[str, str]:
    """Variables that select Mesa's software driver, where it is installed."""
    found = sorted(Path("/usr/share/vulkan/icd.d").glob("lvp_icd*.json"))
    return {"VK_DRIVER_FILES": str(found[0])} if found else {}
