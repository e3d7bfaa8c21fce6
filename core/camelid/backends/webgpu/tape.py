"""The tape: device work as plain data, ready for JSON.

A section is self-contained. It creates buffers, defines WGSL modules, bind-group layouts, pipelines and bind
groups, and lists commands. Hosts (`host_python.py`, `web/executor.js`) execute sections only:

    buffers    [{"name", "bytes", "usage": ["storage", ...], "data": base64 or absent, "temporary": bool,
                 "bound": bytes of the largest binding, if it is not the whole buffer}]
    dropped    [name, ...]                           buffers of earlier sections that are freed first
    modules    {key: WGSL}
    layouts    {key: ["read" | "write", ...]}        one compute storage binding each, in binding order
    pipelines  [{"module", "layout", "constants": {name: number}}]        entry point "main"
    groups     [{"layout", "bindings": [[buffer, offset, bytes], ...]}]
    commands   ["upload", source, offset, bytes, buffer, at]      bytes of a source, read by the host;
                                                                  source: a name or ["inline", base64]
               ["words", buffer, at, [u32, ...]]                  small data from the tape itself
               ["dispatch", pipeline, group, [x, y, z]]           a grid entry is a number or
                                                                  [word, per]: ceil(step[word] / per)
    step       [buffer, bytes]                       where `run` writes the step
    results    [[buffer, offset, word, each], ...]   `read` returns step[word] * each bytes per entry, joined
    ring       the largest number of steps between `run` and `read`
    early      [[command, pipeline, grid], ...]      pipeline and grid of a dispatch until its own pipeline is
                                                     compiled, with the same bits; a host may ignore them

A dispatch with an empty grid is not launched.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

GridEntry = int | tuple[int, int]
Command = tuple[Any, ...]


@dataclass(slots=True)
class Section:
    """A section under construction. The `add` methods return an index or key, and never repeat an entry."""

    name: str
    kind: str  # load, allocate or program
    buffers: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    dropped: list[str] = field(default_factory=list[str])
    modules: dict[str, str] = field(default_factory=dict[str, str])
    layouts: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    pipelines: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    groups: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    commands: list[Command] = field(default_factory=list[Command])
    step: tuple[str, int] | None = None
    results: list[tuple[str, int, int, int]] = field(default_factory=list[tuple[str, int, int, int]])
    ring: int = 0
    early: list[tuple[int, int, tuple[GridEntry, ...]]] = field(
        default_factory=list[tuple[int, int, tuple[GridEntry, ...]]]
    )

    def add_buffer(
        self,
        name: str,
        n_bytes: int,
        usage: Sequence[str],
        *,
        data: str = "",
        temporary: bool = False,
        bound: int = 0,
    ) -> None:
        entry: dict[str, Any] = {"name": name, "bytes": -(-n_bytes // 16) * 16, "usage": list(usage)}
        more = {"data": data, "temporary": temporary, "bound": bound}
        self.buffers.append(entry | {key: value for key, value in more.items() if value})

    def add_layout(self, access: Sequence[str]) -> str:
        key = "".join(word[0] for word in access)
        self.layouts[key] = list(access)
        return key

    def add_pipeline(self, module: str, wgsl: str, layout: str, constants: Mapping[str, float]) -> int:
        self.modules[module] = wgsl
        return _index(self.pipelines, {"module": module, "layout": layout, "constants": dict(constants)})

    def add_group(self, layout: str, bindings: Sequence[tuple[str, int, int]]) -> int:
        return _index(self.groups, {"layout": layout, "bindings": [list(b) for b in bindings]})

    def dispatch(self, pipeline: int, group: int, grid: Sequence[GridEntry]) -> None:
        self.commands.append(("dispatch", pipeline, group, tuple(grid)))

    @property
    def launches(self) -> Mapping[frozenset[int], int]:
        """Number of dispatches by the set of step words that must be above 0 to launch them."""
        grids = [command[3] for command in self.commands if command[0] == "dispatch"]
        return Counter(frozenset(e[0] for e in grid if not isinstance(e, int)) for grid in grids)

    def compiled_json(self) -> dict[str, Any]:
        """The part of the section from which its first pipelines are compiled, as JSON data."""
        late = {self.commands[command][1] for command, *_ in self.early}
        first = [entry for i, entry in enumerate(self.pipelines) if i not in late]
        empty = Section(self.name, self.kind, layouts=self.layouts, modules=self.modules, pipelines=first)
        return empty.json()

    def json(self) -> dict[str, Any]:
        """The section as JSON data. The round trip through JSON ensures that it is plain data."""
        return json.loads(json.dumps(asdict(self)))


def _index(entries: list[dict[str, Any]], entry: dict[str, Any]) -> int:
    if entry not in entries:
        entries.append(entry)
    return entries.index(entry)
