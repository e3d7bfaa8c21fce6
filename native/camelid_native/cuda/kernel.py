"""The row of the kernel table, and the grids that rows share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from camelid.backends.base import PoolSize
from camelid.plan.plan import Op, Plan
from camelid_native.cuda.compiler import Module, Space
from camelid_native.cuda.device import Grid
from camelid_native.cuda.signature import Values


@dataclass(frozen=True, slots=True)
class Context:
    """Inputs of a kernel's values and grid besides its op."""

    plan: Plan
    pools: Mapping[str, PoolSize]
    has_matrix: bool = False  # the device has the matrix instructions of gemm.h
    has_half_matrix: bool = False  # and those of many_halves.h
    n_devices: int = 1  # of a tensor-parallel model

    def rows(self, op: Op, role: str) -> int:
        """The capacity of a view's rows."""
        return self.plan.rows[op.view(role).rows]


@dataclass(frozen=True, slots=True)
class Kernel:
    """One launch of an op.

    - `file` is the kernel file, `name` the function in it ("": as the file).
    - `grid` has the blocks for the program's capacities; blocks beyond the step's counts leave.
    - `values` are arguments by name beside those of `places.py`: step, views, weights, state, results.
    - `headers` are compiled before the file: a codec, a cache type. `defines` are macros: sizes that the
      compiler must know.
    - `spaces` are headers in namespaces, as of `Module`.
    - `scratch` are bytes of memory between the launches of the op, by parameter.
    - `counters` is a number of words that are 0 before and after the launch, its parameter of this name.
    - `when` is false for an op that does not need the launch.
    """

    file: str
    grid: Callable[[Op, Context], Grid]
    values: Callable[[Op, Context], Values] = lambda op, c: {}
    name: str = ""
    headers: Callable[[Op, Context], tuple[str, ...]] = lambda op, c: ()
    defines: Callable[[Op, Context], Mapping[str, int]] = lambda op, c: {}
    spaces: Callable[[Op, Context], tuple[Space, ...]] = lambda op, c: ()
    scratch: Callable[[Op, Context], Mapping[str, int]] = lambda op, c: {}
    counters: Callable[[Op, Context], int] = lambda op, c: 0
    when: Callable[[Op, Context], bool] = lambda op, c: True

    def module(self, op: Op, context: Context) -> Module:
        """The module with the kernel."""
        defines = tuple((name, str(value)) for name, value in self.defines(op, context).items())
        return Module(self.file, self.headers(op, context), defines, self.spaces(op, context))

    @property
    def function(self) -> str:
        return self.name or self.file


@dataclass(frozen=True, slots=True)
class OpKernels:
    """The launches of an op, in order.

    - `attrs` are the attributes that the kernels support with all values; `words` those with a number for
      each supported value, which becomes an argument by the attribute's name.
    - `refuses` returns the reason why an op cannot run, or "".
    - `lower` chooses the ops that run in its place: itself, or others with kernels of their own.
    """

    launches: tuple[Kernel, ...]
    attrs: tuple[str, ...] = ()
    words: Mapping[str, Mapping[str, int]] = field(default_factory=dict[str, Mapping[str, int]])
    refuses: Callable[[Op, Plan], str] = lambda op, plan: ""
    lower: Callable[[Op, Plan], tuple[Op, ...]] = lambda op, plan: (op,)


def tiles(n: int, per: int) -> int:
    return -(-n // per)


def width_grid(role: str, per: int = 256) -> Callable[[Op, Context], Grid]:
    """A grid with one thread per column of the view, and its rows."""
    return lambda op, c: (tiles(op.view(role).cols, per), c.rows(op, role), 1)


def row_grid(role: str) -> Callable[[Op, Context], Grid]:
    """A grid with one block per row of the view."""
    return lambda op, c: (1, c.rows(op, role), 1)
