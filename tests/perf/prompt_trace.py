"""Trace of one fresh process, as JSON: `prompt_trace.py CHECKOUT BACKEND`.

Started by `prompt_path`. It calls public names alone and recognises waypoints by their signatures, so that it
runs on checkouts with other inner modules.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType

TEXT, OTHER = "Once upon a time there was a small camel who", "The baker has seven loaves left, and then"
WAYPOINTS = {  # change of the prompt -> the function's name and its first parameters
    "text to ids": ("encode", ("self", "text")),
    "ids to a step": ("__init__", ("self", "rows", "sequences", "outputs")),
    "step to bytes": ("encode_step", ("step", "layout")),
    "bytes to the backend": ("run", ("self", "program", "step")),
    "results from the backend": ("read", ("self", "ticket")),
    "id to its bytes": ("token_bytes", ("self", "token_id")),
    "text to an event": ("__init__", ("self", "text", "token_id", "logprob")),
}


def folders(root: str) -> tuple[str, ...]:
    """Folders of the checkout's own code."""
    return f"{root}core/", f"{root}native/"


class Trace:
    """Files of a checkout with called functions, and the call stacks at waypoints."""

    def __init__(self, root: str) -> None:
        self.called: set[str] = set()
        self.stacks: dict[str, list[list[str]]] = {name: [] for name in WAYPOINTS}
        self._root = root
        self._folders = folders(root)

    def note(self, frame: FrameType, event: str, argument: object) -> None:
        """Hook of `sys.setprofile`. Ignores bodies of modules and classes, which imports run."""
        code = frame.f_code
        if event != "call" or not code.co_flags & CO_OPTIMIZED:
            return
        self.called.update(self._own(frame))
        for name, (function, parameters) in WAYPOINTS.items():
            if code.co_name == function and code.co_varnames[: len(parameters)] == parameters:
                self.stacks[name].append(self._stack(frame))

    def passed(self) -> list[str]:
        """Files on the stack at any waypoint."""
        return sorted({file for stacks in self.stacks.values() for stack in stacks for file in stack})

    def chains(self) -> dict[str, list[str]]:
        """The longest stack at each waypoint; empty for a missed waypoint."""
        return {name: max(stacks, key=len, default=[]) for name, stacks in self.stacks.items()}

    def _own(self, frame: FrameType) -> list[str]:
        """The frame's file, if it belongs to the checkout."""
        path = frame.f_code.co_filename
        return [path.removeprefix(self._root)] if path.startswith(self._folders) else []

    def _stack(self, frame: FrameType) -> list[str]:
        """Files from the outermost call to the frame, without adjacent repeats."""
        files: list[str] = []
        at: FrameType | None = frame
        while at:
            files += [file for file in self._own(at) if files[-1:] != [file]]
            at = at.f_back
        return files[::-1]


@contextmanager
def traced(root: str) -> Iterator[Trace]:
    """A trace of the body, on every thread."""
    trace = Trace(root)
    threading.setprofile(trace.note)
    sys.setprofile(trace.note)
    try:
        yield trace
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def first_token(ask: Callable[[], Iterator[object]], root: str) -> Trace:
    """A trace from the public call to the first token; the rest of the answer is dropped."""
    with traced(root) as trace:
        answer = ask()
        next(answer)
    del answer
    return trace


def imported(root: str) -> list[str]:
    """Files of all imported modules."""
    paths = [getattr(module, "__file__", None) or "" for module in sys.modules.values()]
    return sorted({path.removeprefix(root) for path in paths if path.startswith(folders(root))})


def main() -> None:
    root, backend = f"{Path(sys.argv[1]).resolve()}/", sys.argv[2]
    with traced(root) as loading:
        import camelid

        llm = camelid.load("cria", backend=backend)
    cold = first_token(lambda: llm.stream(TEXT, seed=0), root)
    modules = imported(root)
    warm = first_token(lambda: llm.stream(OTHER, seed=0), root)
    found = {
        "passed": cold.passed(),
        "called by the cold call": sorted(cold.called),
        "called by the warm call": sorted(warm.called),
        "called in the process": sorted(loading.called | cold.called),
        "imported in the process": modules,
    }
    print(json.dumps({"files": found, "chains": cold.chains()}))


if __name__ == "__main__":
    main()
