"""The kernel table of webgpu: shader files and constants of an op, and the reason why an op cannot run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain

from camelid.backends.webgpu import (
    halves,
    kernels_adapters,
    kernels_basic,
    kernels_encoder,
    kernels_matrix,
    kernels_qkv,
    kernels_recurrent,
    kernels_state,
    kernels_streams,
)
from camelid.backends.webgpu.kernel import ROUNDED_FILES, Constants, Context, Kernel, roles_of
from camelid.backends.webgpu.layouts import LAYOUTS, row_multiple
from camelid.backends.webgpu.load import MOVABLE, Join, check_weight
from camelid.errors import BackendError
from camelid.plan.dtypes import F32
from camelid.plan.ops import OPS
from camelid.plan.plan import Op, Plan
from camelid.plan.weights import Weight

KERNELS: dict[str, Kernel] = {
    **kernels_basic.KERNELS,
    **kernels_matrix.KERNELS,
    **kernels_qkv.KERNELS,
    **kernels_recurrent.KERNELS,
    **kernels_state.KERNELS,
    **kernels_encoder.KERNELS,
    **kernels_streams.KERNELS,
    **kernels_adapters.KERNELS,
}


def _formed(op: Op) -> Kernel:
    """The kernel of the op's row for its operands."""
    row = KERNELS[op.name]
    return row.form(row, op)


def kernels_of(op: Op, context: Context) -> tuple[Kernel, ...]:
    """The kernels of the op's dispatches, in order."""
    row = KERNELS[op.name]
    if row.within and _shares_buffer(row, op):
        return (row.within,)
    kernel = _formed(op)
    return kernel.split.kernels if kernel.split and scratch_bytes(op, context) else (kernel,)


def _shares_buffer(kernel: Kernel, op: Op) -> bool:
    """True if the kernel writes views, and two of its bindings are of one buffer."""
    roles = [role for binding in kernel.bindings for role in roles_of(binding)]
    buffers = [view.buffer.name for role, view in op.views() if role in roles]
    return kernel.access == "write" and len({*buffers}) < len(buffers)


def lowered(op: Op, context: Context) -> tuple[Op, ...]:
    """The ops that run in place of an op: itself, its parts, or others with kernels of their own."""
    return KERNELS[op.name].lower(op, context)


def scratch_bytes(op: Op, context: Context) -> int:
    """Bytes that the op's kernels hand over to one another."""
    split = KERNELS[op.name].split
    return split.n_bytes(op, context) if split else 0


def module_of(kernel: Kernel, op: Op, context: Context, join: Join) -> tuple[str, str]:
    """Key and text of a kernel's module; the key names all files, and the operands that select the text."""
    files = shader_files(kernel, op, context)
    if not kernel.second:
        return "+".join(files), join(*files)
    more = shader_files(replace(kernel, codec=kernel.second), op, context)
    key = "+".join(
        (*dict.fromkeys((*files, *more, halves.FILE)), *(f"has_{role}" for role in kernel.optional))
    )
    return key, halves.module(join(*files), join(*more), join(halves.FILE), kernel.unbound)


def shader_files(kernel: Kernel, op: Op, context: Context) -> tuple[str, ...]:
    """Shader files of a kernel's module, prelude first."""
    codec = LAYOUTS[op.weight(kernel.codec).type].files if kernel.codec else ()
    state = (
        kernel.state_codec[context.plan.state(op.state("state").group).kv_type] if kernel.state_codec else ()
    )
    act = kernel.acts[op.word("act")] if kernel.acts else ()
    files = kernel.files
    if kernel.tiled and context.is_tiled(op):
        files = kernel.tiled
    elif kernel.wide and context.quads(op, kernel.codec) > 1:
        files = kernel.wide
    if kernel.codec and context.is_rounded(op, kernel.codec):
        files = tuple(chain.from_iterable(ROUNDED_FILES.get(name, (name,)) for name in files))
    return ("prelude", *codec, *state, *act, *files)


def op_constants(op: Op) -> Constants:
    """Constants common to all kernels: `<ROLE>_STRIDE` and `<ROLE>_OFFSET` of each view in floats,
    `HAS_<ROLE>` of each optional operand, and the number of each word attribute."""
    kernel = KERNELS[op.name]
    constants: Constants = {f"{role.upper()}_STRIDE": view.stride for role, view in op.views()}
    constants |= {f"{role.upper()}_OFFSET": view.offset for role, view in op.views()}
    constants |= {f"HAS_{role.upper()}": int(op.has(role)) for role in kernel.optional}
    return constants | {name.upper(): known[op.word(name)] for name, known in kernel.words.items()}


def refusal(op: Op, plan: Plan) -> str:
    """The reason why this backend cannot run the op, "" if it can.

    Unsupported operands and attributes are never ignored.
    """
    if op.name not in KERNELS:
        return f"there is no webgpu kernel for the op {op.name!r}"
    if parts := KERNELS[op.name].parts:
        return next(filter(None, (refusal(part, plan) for part in parts(op))), "")
    kernel = _formed(op)
    reason = next(_reasons(op, kernel), "") or kernel.refuses(op, plan)
    return f"the webgpu kernel of {op.name} does not support {reason}" if reason else ""


def plan_refusal(plan: Plan) -> str:
    """The first reason why an op or a weight of the plan cannot run, or ""."""
    reasons = (refusal(op, plan) for op in plan.ops)
    loading = (_load_refusal(weight) for weight in plan.weights().values())
    return next((reason for reason in chain(reasons, loading) if reason), "")


def _load_refusal(weight: Weight) -> str:
    try:
        check_weight(weight)
    except BackendError as error:
        return str(error)
    return ""


def _reasons(op: Op, kernel: Kernel) -> Iterator[str]:
    yield from (f"the operand {role}" for role, _ in op.operands if role not in kernel.operands)
    known = {*kernel.attrs, *kernel.words, *(("act",) if kernel.acts else ())}
    for name, value in op.attrs:
        if name not in known and value != OPS[op.name].defaults.get(name):
            yield f"{name} = {value!r}"
        elif name in kernel.words and value not in kernel.words[name]:
            yield f"{name} = {value!r}; supported: {', '.join(kernel.words[name])}"
        elif name == "act" and value not in kernel.acts:
            yield f"act = {value!r}; supported: {', '.join(kernel.acts)}"
    yield from _layout_reasons(op, kernel)


def _layout_reasons(op: Op, kernel: Kernel) -> Iterator[str]:
    # WebGPU forbids two bindings of one range if one is writable.
    if any(_shares_buffer(k, op) for k in (kernel.within or kernel, *_split_kernels(kernel))):
        yield f"two views of one buffer: {', '.join(view.buffer.name for _, view in op.views())}"
    yield from (f"{role} = {view}: it is not float32" for role, view in op.views() if view.dtype != F32)
    for role in kernel.vec4:
        view = op.view(role)
        if view.stride % 4 or view.offset % 4:
            yield f"{role} = {view}: its rows do not start at multiples of 4 floats"
    for role, operand in op.operands:
        if isinstance(operand, Weight):
            known = MOVABLE if role == kernel.plain else ("f32",)
            yield from _codec_reasons(operand) if role == kernel.codec else _plain_reasons(operand, known)


def _split_kernels(kernel: Kernel) -> tuple[Kernel, ...]:
    return kernel.split.kernels if kernel.split else ()


def _codec_reasons(weight: Weight) -> Iterator[str]:
    if weight.type not in LAYOUTS:
        yield f"{weight.name} of type {weight.type}; supported: {', '.join(LAYOUTS)}"
    elif weight.cols % row_multiple(weight.type):
        multiple = row_multiple(weight.type)
        yield f"{weight.name} with rows of {weight.cols} weights; a multiple of {multiple} is required"


def _plain_reasons(weight: Weight, known: Iterable[str]) -> Iterator[str]:
    if weight.type not in known:
        yield f"{weight.name} of type {weight.type}; {' or '.join(known)} is required there"
