"""A running vision tower: images to rows for the decoder, on a backend of its own."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from camelid.backends.base import Backend, Program, check_plan, reason_against
from camelid.images.decode import ImageFile, decoded
from camelid.images.patches import Place, patch_rows, patches_of, table_weights, windows_of
from camelid.loading.choose import open_named
from camelid.model.vision.grid import Grid, grid_of
from camelid.model.vision.lower import Run, lower_tower, runs_of
from camelid.model.vision.projectors import PROJECTORS
from camelid.model.vision.spec import Tower, TowerSpec
from camelid.plan.fuse import fuse
from camelid.plan.plan import Plan
from camelid.plan.step import Step, StepRow, StepSequence, encode_step

MAX_KEPT = 16  # encoded images that stay in memory, for the next turns of a conversation
NO_ADAPTERS: Mapping[str, str] = {}  # each backend chooses its own
PATCH_STEP = 256  # capacities of programs are multiples of so many patches


@dataclass(frozen=True, slots=True)
class Picture:
    """A decoded image as a tower reads it: its grid, and the inputs of the first plan by name, float32.

    `positions` are two channels for each patch. `windows` are the numbers of patches of each window, `order`
    are the image's rows for the decoder in the order of the patches.
    """

    grid: Grid
    positions: Sequence[Place]
    inputs: Mapping[str, bytes]
    windows: Sequence[int]
    order: Sequence[int]


def picture(file: ImageFile, tower: TowerSpec, place: str = "image") -> Picture:
    """Decodes, resizes and cuts an image. Raises RequestError for an image that cannot be read."""
    image, how = decoded(file, place), tower.resizing
    grid = grid_of(tower, *image.size)
    merge, (height, width) = grid.merge, grid.squares
    windows = windows_of(height, width, tower.window // merge)
    places = patches_of(list(chain.from_iterable(windows)), merge)
    image = image.resized(*grid.pixels, how.resample)
    inputs = {"pixels": patch_rows(image, places, grid.size, how.mean, how.std)}
    positions: Sequence[Place] = places
    if tower.n_positions and how.size:
        positions = [(y * grid.width + x, 0) for y, x in places]
    elif tower.n_positions:
        inputs["places"] = table_weights(places, grid.height, grid.width, round(tower.n_positions**0.5))
    order = [y * width + x for y, x in chain.from_iterable(windows)]
    return Picture(grid, positions, inputs, [len(window) * merge**2 for window in windows], order)


@dataclass(slots=True)
class RunningTower:
    """A tower on an open backend. Images are encoded one at a time; `note` states the backend."""

    tower: Tower
    backend: Backend
    note: str = ""
    _programs: dict[tuple[Run, int], Program] = field(default_factory=dict[tuple[Run, int], Program])
    _kept: OrderedDict[bytes, memoryview] = field(default_factory=OrderedDict[bytes, memoryview])
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def encode(self, file: ImageFile) -> memoryview:
        """The image's rows for the decoder, as float32 [rows, side_cols]. Raises RequestError."""
        async with self._turn:
            key = file.digest
            if key not in self._kept:
                self._kept[key] = await self.run(picture(file, self.tower.spec))
                if len(self._kept) > MAX_KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(key)
            return self._kept[key]

    async def run(self, image: Picture) -> memoryview:
        """The rows of a decoded image: those of the last layer, then those of tapped layers side by side."""
        x: Mapping[str, bytes] = image.inputs
        made: list[bytes] = []
        for run in runs_of(self.tower):
            data = await self._run(run, image, x)
            if run.is_projector:
                made.append(data)
            else:
                x = {"x": data}
        return memoryview(_side_by_side([made[-1], *made[:-1]], image.order))

    async def _run(self, run: Run, image: Picture, inputs: Mapping[str, bytes]) -> bytes:
        program = await self._program(run, image.grid.n_patches)
        step = encode_step(_step(run, image, self.tower), program.plan.layout)
        ticket = self.backend.run(program, step, {b.name: inputs[b.name] for b in program.plan.given})
        await self.backend.read(ticket)
        made = await self.backend.read_boundary(ticket)
        return made[program.plan.made[0].name]

    async def _program(self, run: Run, n_patches: int) -> Program:
        """The program of a run, compiled on first use for at least so many patches."""
        key = run, _capacity(self.tower, n_patches)
        if key not in self._programs:
            self._programs[key] = await self.backend.compile(_plan(self.tower, *key, self.backend))
        return self._programs[key]

    async def close(self) -> None:
        """Closes the backend."""
        self._programs.clear()
        await self.backend.close()


async def start_tower(
    tower: Tower,
    sources: dict[str, object],
    names: Sequence[str],
    threads: int | None = None,
    adapters: Mapping[str, str] = NO_ADAPTERS,
) -> RunningTower:
    """Opens the first backend of `names` that has the tower's ops, and loads the weights. `adapters` are
    those of the backends by name.

    Raises BackendError if none has them.
    """
    *others, last = names
    for name in (*others, last):
        own_threads = threads if name == "cpu" else None
        backend = await open_named(name, adapters.get(name, ""), own_threads)
        try:
            plans = [_plan(tower, run, _capacity(tower, 1), backend) for run in runs_of(tower)]
            reason = next(filter(None, (reason_against(plan, backend.capabilities()) for plan in plans)), "")
            if reason and name != last:
                await backend.close()
                continue
            for plan in plans:
                check_plan(plan, backend.capabilities())
            weights = list({n: w for plan in plans for n, w in plan.weights().items()}.values())
            named = {part.source for weight in weights for part in weight.parts}
            await backend.load(weights, {n: sources[n] for n in named & sources.keys()})
            await backend.allocate((), {})
        except BaseException:
            await backend.close()
            raise
        can = backend.capabilities()
        return RunningTower(tower, backend, f"images on {can.name} ({can.device})")
    raise AssertionError("the last backend is used or refused")


def _capacity(tower: Tower, n_patches: int) -> int:
    """Patches of the program for an image: all images have one size, or the next step of sizes."""
    size = tower.spec.resizing.size
    if size:
        return (size // tower.spec.patch_size) ** 2
    step = PATCH_STEP * tower.spec.merge**2
    return -(-n_patches // step) * step


def _plan(tower: Tower, run: Run, n_patches: int, backend: Backend) -> Plan:
    can = backend.capabilities()
    return fuse(lower_tower(tower, run, n_patches), can.fused, most_bytes=can.most_bytes)


def _side_by_side(parts: Sequence[bytes], order: Sequence[int]) -> bytes:
    """The rows of all parts side by side, in the order of the image's rows."""
    size = len(parts[0]) // len(order)
    at = {row: number * size for number, row in enumerate(order)}
    return b"".join(part[at[row] : at[row] + size] for row in range(len(order)) for part in parts)


def _step(run: Run, image: Picture, tower: Tower) -> Step:
    """The step of a run: one row per patch, or per joined row in a projector that joins patches."""
    n = image.grid.n_rows
    if not run.is_projector:
        return _patch_step(image.positions, image.windows if run.is_windowed else [len(image.positions)])
    if PROJECTORS[tower.spec.projector].pools:
        return _patch_step(image.positions, [image.grid.merge**2] * n, has_outputs=True)
    return _patch_step([(0, 0)] * n, [n])


def _patch_step(positions: Sequence[Place], lengths: Sequence[int], *, has_outputs: bool = False) -> Step:
    """Rows at these positions, in sequences of these lengths, perhaps with one output each."""
    step, first = Step(), 0
    for number, n in enumerate(lengths):
        step.rows += [StepRow(0, 0, number, i, positions[first + i]) for i in range(n)]
        step.sequences.append(StepSequence(first, n, ()))
        step.outputs += [(first + n - 1, number, n)] if has_outputs else []
        first += n
    return step
