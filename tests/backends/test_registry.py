"""The registry: a backend whose package is missing."""

from __future__ import annotations

import sys

import pytest

from camelid.backends.registry import BACKENDS, BackendRow, auto_names, open_backend
from camelid.errors import BackendError

HOST = "camelid.backends.webgpu.host_python"


def test_a_missing_package_is_named_with_its_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is imported by `open_backend` of the backend's module, after the module itself."""
    monkeypatch.setitem(sys.modules, "wgpu", None)
    monkeypatch.delitem(sys.modules, HOST, raising=False)
    with pytest.raises(BackendError, match=r"'webgpu' needs the package 'wgpu': pip install wgpu"):
        open_backend("webgpu")


def test_a_missing_extra_is_named_with_its_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    row = BackendRow(module="no_such_driver", role="other", extra="fast")
    monkeypatch.setitem(BACKENDS, "fast", row)
    with pytest.raises(
        BackendError, match=r"needs the package 'no_such_driver': pip install 'camelid\[fast\]'"
    ):
        open_backend("fast")


@pytest.mark.parametrize(
    ("system", "machine", "names"),
    [
        ("darwin", "arm64", ("mlx", "webgpu", "cpu")),
        ("darwin", "x86_64", ("webgpu", "cpu")),
        ("linux", "aarch64", ("cuda", "webgpu", "cpu")),
        ("win32", "AMD64", ("webgpu", "cpu")),
    ],
)
def test_auto_tries_the_backends_of_a_system(
    system: str, machine: str, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", system)
    monkeypatch.setattr("platform.machine", lambda: machine)
    assert auto_names() == names
