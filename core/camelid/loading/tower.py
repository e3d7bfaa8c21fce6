"""A running vision tower: images to rows for the decoder, on a backend of its own."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from camelid.backends.base import Backend, Program, check_plan, reason_against
from camelid.images.decode import ImageFile, decoded
from camelid.images.patches import Place, merged_places, patch_rows, resized
from camelid.loading.choose import open_named
from camelid.model.vision.grid import Grid, grid_of
from camelid.model.vision.lower import Run, lower_tower, runs_of
from camelid.model.vision.projectors import PROJECTORS
from camelid.model.vision.spec import Tower, TowerSpec
from camelid.plan.fuse import fuse
from camelid.plan.plan import Plan
from camelid.plan.step import Step, StepRow, StepSequence, encode_step

MAX_KEPT = 16  # encoded images that stay in memory, for the next turns of a conversation
PATCH_STEP = 256  # capacities of programs are multiples of so many patches


@dataclass(frozen=True, slots=True)
class Picture:
    """A decoded image as a tower reads it: its grid, and the patches as float32 [patches, patch_cols].

    `positions` are two channels for each patch.
    """

    grid: Grid
    positions: Sequence[Place]
    pixels: bytes


def picture(file: ImageFile, tower: TowerSpec, place: str = "image") -> Picture:
    """Decodes, resizes and cuts an image. Raises RequestError for an image that cannot be read."""
    image = decoded(file, place)
    grid = grid_of(tower, *image.size)
    how = tower.resizing
    image = resized(image, *grid.pixels, how.resample)
    places = merged_places(grid.height, grid.width, grid.merge)
    pixels = patch_rows(image, places, grid.size, how.mean, how.std)
    return Picture(
        grid, [(y * grid.width + x, 0) for y, x in places] if tower.n_positions else places, pixels
    )


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
        """The rows of a decoded image."""
        data = image.pixels
        for run in runs_of(self.tower):
            data = await self._run(run, image, data)
        return memoryview(data)

    async def _run(self, run: Run, image: Picture, data: bytes) -> bytes:
        program = await self._program(run, image.grid.n_patches)
        step = encode_step(_step(run, image, self.tower), program.plan.layout)
        ticket = self.backend.run(program, step, {program.plan.given[0].name: data})
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
    tower: Tower, sources: dict[str, object], names: Sequence[str], threads: int | None = None
) -> RunningTower:
    """Opens the first backend of `names` that has the tower's ops, and loads the weights.

    Raises BackendError if none has them.
    """
    *others, last = names
    for name in (*others, last):
        backend = await open_named(name, threads=threads if name == "cpu" else None)
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


def _step(run: Run, image: Picture, tower: Tower) -> Step:
    """The step of a run: one row per patch, or per joined row in a projector that joins patches."""
    if not run.is_projector:
        return _patch_step(image.positions)
    if PROJECTORS[tower.spec.projector].pools:
        return _patch_step(image.positions, image.grid.merge**2)
    return _patch_step([(0, i) for i in range(image.grid.n_rows)])


def _patch_step(places: Sequence[Place], n_each: int = 0) -> Step:
    """Rows at these places, in sequences of `n_each` rows with one output each (0: one, without outputs)."""
    n = n_each or len(places)
    rows = [StepRow(0, 0, i // n, i, place) for i, place in enumerate(places)]
    sequences = [StepSequence(first, n, ()) for first in range(0, len(places), n)]
    outputs = [(s.first_row + n - 1, i, n) for i, s in enumerate(sequences)] if n_each else []
    return Step(rows=rows, sequences=sequences, outputs=outputs)
