"""Sampling on Metal: the draw of each output, and its candidates (`metal/draw.metal`)."""

from __future__ import annotations

from camelid.plan.step import CANDIDATE_WORDS, RESULT_WORDS
from camelid_native.mlx.arrays import Array, mx
from camelid_native.mlx.metal.launch import LANES, Grid, Kernel, StepForm, Value, launch

THREADS = 256

_HEADER = ("step", "math", "block", "place", "philox", "adjust", "topk", "draw")
SAMPLE = Kernel(header=_HEADER, body=("selection", "sample"), inputs=("logits", "step", "ring"))
CANDIDATES = Kernel(header=_HEADER, body=("selection", "candidates"), inputs=("logits", "step"))


def sample(
    logits: Array, step: Array, ring: Array, form: StepForm, *, group: int
) -> Array:  # logits [O, V], ring u32 [slots, R] -> u32 [O, 4]
    """The op `sample`: id, status, and the bits of the id's logit and of the log-sum-exp of each output.

    `group` is the ring's index among the step's state groups. The ring is not written: the ids of the last
    outputs of sequences are to be put there.
    """
    constants = _constants(logits, form) | {"GROUP": group, "RING_ROWS": ring.shape[1]}
    arrays = {"logits": logits, "step": step, "ring": ring}
    return _launch(SAMPLE, arrays, constants, RESULT_WORDS)


def candidates(logits: Array, step: Array, form: StepForm) -> Array:  # [O, V] -> u32 [O, 514]
    """The op `candidates`: ids and logits of the largest logits, then their mean and variance, as bits."""
    constants = _constants(logits, form) | {"GROUP": 0, "RING_ROWS": 1, "CANDIDATE_WORDS": CANDIDATE_WORDS}
    return _launch(CANDIDATES, {"logits": logits, "step": step}, constants, CANDIDATE_WORDS)


def _constants(logits: Array, form: StepForm) -> dict[str, Value]:
    sizes = {"ROW_WORDS": form.row_words, "SEQUENCE_WORDS": form.sequence_words}
    return {"VOCAB": logits.shape[1], "THREADS": THREADS, **sizes}


def _launch(kernel: Kernel, arrays: dict[str, Array], constants: dict[str, Value], n_words: int) -> Array:
    n_outputs = arrays["logits"].shape[0]
    grid = Grid(groups=(n_outputs, 1, 1), simdgroups=THREADS // LANES)
    shapes = [(n_outputs, n_words)]
    return launch(kernel, arrays, constants=constants, grid=grid, shapes=shapes, dtypes=(mx.uint32,))[0]
