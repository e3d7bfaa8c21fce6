"""The lowering of weights, state and plans to sections of a tape."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from camelid.backends.base import PoolSize
from camelid.backends.common.plain_weights import plain_weight
from camelid.backends.webgpu.kernel import Constants, Context, Kernel, roles_of
from camelid.backends.webgpu.kernels import (
    kernels_of,
    lowered,
    module_of,
    op_constants,
    refusal,
    scratch_bytes,
)
from camelid.backends.webgpu.kernels_adapters import joined_plan
from camelid.backends.webgpu.layouts import (
    READ_WRITE,
    STAGING,
    STAGING_BYTES,
    TASK,
    TASK_BYTES,
    bound_bytes,
    buffer_name,
)
from camelid.backends.webgpu.limits import DEFAULTS, most_bytes
from camelid.backends.webgpu.load import Join, add_weight
from camelid.backends.webgpu.pieces import op_pieces, pieces
from camelid.backends.webgpu.state_buffers import (
    KV_TYPES,
    TABLES,
    layer_binding,
    regions,
    row_words,
    tables_bytes,
)
from camelid.backends.webgpu.tape import Section
from camelid.errors import BackendError
from camelid.plan.memory import Arena, buffer_bytes, plan_arena
from camelid.plan.op_rows_adapters import KIND as ADAPTER
from camelid.plan.plan import Op, Plan, StateRef, StateSpec, View
from camelid.plan.step import CANDIDATE_WORDS, RESULT_WORDS, StepLayout
from camelid.plan.tiers import is_tail
from camelid.plan.weights import Weight

Binding = tuple[str, int, int]

STATE_KINDS = ("paged", "window", "static", "ring", "recurrent", ADAPTER)
# Results in the order of reading: binding name -> (ops that write it, bytes per output of the op).
RESULTS: Mapping[str, tuple[tuple[str, ...], Callable[[Op], int]]] = {
    "result": (("sample", "emit"), lambda op: 4 * RESULT_WORDS),
    "candidates": (("candidates",), lambda op: 4 * CANDIDATE_WORDS),
    "floats": (("emit",), lambda op: op.view("x").row_bytes),
}
SCRATCH = "scratch"  # binding of partial results
READBACK_RING = 3  # two steps in flight, and one step being read
OVERRIDE = re.compile(r"^override (\w+)", re.MULTILINE)


def load_section(weights: Iterable[Weight], join: Join, limits: Mapping[str, int] = DEFAULTS) -> Section:
    """Section that creates the buffers of weights, fills them from their sources and repacks them.

    A weight above the limits of a binding is cut into pieces.
    """
    section = Section("load", "load")
    section.add_buffer(TASK, TASK_BYTES, READ_WRITE, temporary=True)
    section.add_buffer(STAGING, STAGING_BYTES, READ_WRITE, temporary=True)
    for weight in map(plain_weight, weights):
        for piece in pieces(weight, most_bytes(limits)):
            add_weight(section, piece.weight, join)
    return section


def allocate_section(states: Sequence[StateSpec], pools: Mapping[str, PoolSize]) -> Section:
    """Section that creates the buffers of state: one per layer, and one for all page tables.

    Slots of adapters have a buffer per matrix, and no page tables.
    """
    section = Section("allocate", "allocate")
    for spec in states:
        if not spec.tensors:  # all layers of the group are on other devices
            continue
        _check_state(spec)
        units = pools[spec.name].units
        for layer in spec.layers or (0,):
            if spec.kind == ADAPTER:
                for region in regions(spec, layer, units).values():
                    section.add_buffer(region.buffer, region.n_bytes, READ_WRITE)
                continue
            name, _, n_bytes = layer_binding(spec, layer, units)
            parts = [region.n_bytes for region in regions(spec, layer, units).values()]
            bound = n_bytes if is_tail(spec.name) else max(parts)  # a tail has one binding
            section.add_buffer(name, n_bytes, READ_WRITE, bound=bound)
    if any(spec.kind != ADAPTER for spec in states):
        section.add_buffer(TABLES, tables_bytes(states, pools), READ_WRITE)
    return section


def _check_state(spec: StateSpec) -> None:
    if spec.kind not in STATE_KINDS or spec.kv_type not in KV_TYPES:
        raise BackendError(
            f"webgpu: state {spec.name!r} is {spec.kind} of type {spec.kv_type}; supported are kinds "
            f"{', '.join(STATE_KINDS)} of types {', '.join(KV_TYPES)}. Use the reference backend",
            backend="webgpu",
        )


def arena_name(plan: Plan) -> str:
    return f"arena/{plan.key}"


def _results(plan: Plan) -> dict[str, int]:
    """Bytes per output of each result that an op of the plan writes, by name."""
    return {name: size(op) for name, (ops, size) in RESULTS.items() for op in plan.ops if op.name in ops}


def program_section(
    plan: Plan,
    pools: Mapping[str, PoolSize],
    join: Join,
    lanes: int,
    limits: Mapping[str, int] = DEFAULTS,
    activations: str = "f32",
    *,
    has_early: bool = False,
) -> Section:
    """Section with the dispatches of a plan over its arena.

    `lanes` is the number of lanes that share a weight row, `limits` are those of the device, `activations`
    those of `Capabilities`. With `has_early`, kernels for several token rows have early ones for one row,
    which decode steps use, too.
    """
    for op in plan.ops:
        _checked(op, plan)
    context = Context(joined_plan(plan), dict(pools), lanes, limits, activations)
    section = Section(str(plan.key), "program")
    ops = _parts(context)
    early = (replace(context, most_tokens=1),) if has_early else ()
    lowering = _lowering(section, (context, *early), join, _shared_scratch(ops, context))
    for name, n_bytes in lowering.sizes.items():
        section.add_buffer(lowering.names[name], n_bytes, READ_WRITE)
    for op in ops:
        lowering.add(op)
    section.step = (lowering.names["step"], lowering.sizes["step"])
    section.results = list(lowering.results())
    section.ring = READBACK_RING
    return section


def op_sections(
    plan: Plan,
    pools: Mapping[str, PoolSize],
    join: Join,
    lanes: int,
    limits: Mapping[str, int] = DEFAULTS,
    activations: str = "f32",
) -> list[Section]:
    """The dispatches of each op of a plan, as `program_section` has them, in a section per op."""
    context = Context(plan, dict(pools), lanes, limits, activations)
    scratch, sections = most_scratch(context), list[Section]()
    for op in plan.ops:
        sections.append(Section(op.name, "program"))
        lowering = _lowering(sections[-1], (context,), join, scratch)
        for part in lowered(_checked(op, plan), context):
            lowering.add(part)
    return sections


def _lowering(section: Section, contexts: Sequence[Context], join: Join, scratch: int) -> _Lowering:
    """The lowering of a plan's ops to a section; `scratch` bytes are shared by its ops."""
    plan = contexts[0].plan
    arena = plan_arena(plan)
    sizes = {
        "step": 4 * plan.layout.n_words,
        **{name: n_bytes * plan.key.capacity.outputs for name, n_bytes in _results(plan).items()},
        "arena": max(arena.n_bytes, 16),
    }
    sizes |= {SCRATCH: scratch} if scratch else {}
    names = {role: f"{role}/{plan.key}" for role in sizes}
    return _Lowering(section, plan, contexts, arena, sizes, names, join)


def most_scratch(context: Context) -> int:
    """Bytes of the partial results of a program, which its ops share.

    Raises BackendError if this backend cannot run one.
    """
    for op in context.plan.ops:
        _checked(op, context.plan)
    return _shared_scratch(_parts(context), context)


def _shared_scratch(ops: Iterable[Op], context: Context) -> int:
    return max((scratch_bytes(op, context) for op in ops), default=0)


def _parts(context: Context) -> list[Op]:
    """The ops of the plan, each as its kernels run it."""
    return [part for op in context.plan.ops for part in lowered(op, context)]


def _checked(op: Op, plan: Plan) -> Op:
    """Returns the op. Raises BackendError if this backend cannot run it."""
    if reason := refusal(op, plan):
        raise BackendError(f"{reason}. Use the reference backend", backend="webgpu")
    return op


class _Lowering:
    """Lowers the ops of a plan to dispatches of one section.

    The second of two `contexts` has the early pipelines.
    """

    def __init__(
        self,
        section: Section,
        plan: Plan,
        contexts: Sequence[Context],
        arena: Arena,
        sizes: Mapping[str, int],
        names: Mapping[str, str],
        join: Join,
    ) -> None:
        self.section, self.plan, self.context, self.contexts = section, plan, contexts[0], contexts
        self.arena, self.sizes, self.names, self.join = arena, sizes, names, join

    def add(self, op: Op) -> None:
        for piece, places in op_pieces(op, most_bytes(self.context.limits)):
            for kernel in kernels_of(piece, self.context):
                self._add_kernel(piece, kernel, places)

    def _add_kernel(self, op: Op, kernel: Kernel, places: Constants) -> None:
        modules = [self._module(op, kernel, context, places) for context in self.contexts]
        for bindings, more in self._dispatches(op, kernel):
            access = ("read", *(word for word, _ in bindings))
            layout = self.section.add_layout(access)
            group = self.section.add_group(layout, [self._step(), *(place for _, place in bindings)])
            pipelines = [
                self.section.add_pipeline(key, wgsl, layout, _declared(wgsl, known | more))
                for key, wgsl, known in modules
            ]
            grids = [kernel.grid(op, context) for context in self.contexts]
            self.section.dispatch(pipelines[0], group, grids[0])
            if pipelines[-1] != pipelines[0]:
                self.section.early.append((len(self.section.commands) - 1, pipelines[-1], grids[-1]))

    def _module(
        self, op: Op, kernel: Kernel, context: Context, places: Constants
    ) -> tuple[str, str, Constants]:
        """Key, text and constants of a kernel's module."""
        key, wgsl = module_of(kernel, op, context, self.join)
        return key, wgsl, self._constants(op, kernel, context) | places

    def results(self) -> Iterable[tuple[str, int, int, int]]:
        word = StepLayout.header_word("outputs")
        for name, n_bytes in _results(self.plan).items():
            yield self.names[name], 0, word, n_bytes
        sample = next((op for op in self.plan.ops if op.name == "sample"), None)
        if sample and "all_logits" in self.plan.key.features:
            logits = sample.view("logits")
            yield self.names["arena"], self.arena.offsets[logits.buffer.name], word, logits.row_bytes

    def _constants(self, op: Op, kernel: Kernel, context: Context) -> Constants:
        return step_constants(self.plan.layout) | op_constants(op) | kernel.constants(op, context)

    def _dispatches(self, op: Op, kernel: Kernel) -> Iterable[tuple[list[tuple[str, Binding]], Constants]]:
        """Bindings and additional constants of each dispatch; `state.*`: a dispatch per tensor and layer."""
        if kernel.bindings == ("state.*+",):
            spec = self.plan.state(op.state("state").group)
            for layer in spec.layers:
                for region in regions(spec, layer, self.context.pools[spec.name].units).values():
                    yield [("write", region.binding)], {"WORDS": row_words(spec.kv_type, region.cols)}
            return
        yield [self._binding(op, kernel, role) for role in kernel.bindings], {}

    def _binding(self, op: Op, kernel: Kernel, role: str) -> tuple[str, Binding]:
        access = "write" if role.endswith("+") else "read"
        name, _, tensor = role.rstrip("+?").partition(".")
        if name == SCRATCH or name in RESULTS:
            return access, (self.names[name], 0, self.sizes[name])
        if tensor == "tables":
            return access, (TABLES, 0, tables_bytes(self.plan.states, self.context.pools))
        present = next((one for one in roles_of(role) if op.has(one)), "")
        if role.endswith("?") and not present:
            return "read", self._step()  # WebGPU requires a binding; the kernel does not read it
        operand = dict(op.operands)[present]
        if isinstance(operand, View):
            return kernel.access, self._view(operand)
        if isinstance(operand, Weight):
            return "read", (buffer_name(operand), 0, bound_bytes(operand))
        if tensor == "#":  # of a site, whose number is an attribute
            tensor = str(op.integer(present.replace("adapters", "tensor")))
        # No dispatch both reads and writes the ring.
        return access, self._state(operand, tensor)

    def _step(self) -> Binding:
        return self.names["step"], 0, 4 * self.plan.layout.n_words

    def _view(self, view: View) -> Binding:
        n_bytes = buffer_bytes(view.buffer, self.plan)
        return self.names["arena"], self.arena.offsets[view.buffer.name], n_bytes

    def _state(self, ref: StateRef, tensor: str) -> Binding:
        """The binding of one tensor of a layer, or with `*` of the whole layer.

        In a layer without a tensor of values, the values are the first columns of the keys.
        """
        spec = self.plan.state(ref.group)
        units = self.context.pools[spec.name].units
        if tensor == "*":
            return layer_binding(spec, ref.layer, units)
        layer = regions(spec, ref.layer, units)
        return layer["k" if tensor == "v" and "v" not in layer else tensor].binding


def step_constants(layout: StepLayout) -> dict[str, float]:
    """Widths of the step's records, by their names in prelude.wgsl."""
    return {"ROW_WORDS": layout.row_words, "SEQUENCE_WORDS": layout.sequence_words}


def _declared(wgsl: str, known: Constants) -> Constants:
    """The constants that the module declares. A declared constant without a value keeps its default."""
    return {name: known[name] for name in OVERRIDE.findall(wgsl) if name in known}
