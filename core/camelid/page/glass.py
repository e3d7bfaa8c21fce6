"""The glass box of the page: plan, kernels, times, KV cache and parity of a loaded model.

Each method returns JSON values and changes no conversation: a profiled step runs in unit 0 of every state
group, which no sequence reads, and parity opens a backend of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from camelid.engine.programs import DECODE, MIXED
from camelid.errors import RequestError
from camelid.loading.choose import open_named
from camelid.page.op_times import REPEATS, OpTimer
from camelid.page.parity import examine, summary
from camelid.plan.cost import predict_step
from camelid.plan.ops import Counts, op_bytes
from camelid.plan.plan import Op, Plan, StateRef, View
from camelid.plan.weights import Weight

if TYPE_CHECKING:
    from camelid.api.llm import LLM
    from camelid.api.sessions.session import Session

Json = dict[str, Any]
ENTRIES = (DECODE, MIXED)
MOST_TOKENS = 1 << 12  # token ids of one call of `token_texts`


class Glass:
    """The examined model, with the op programs that its profiles have compiled."""

    def __init__(self, llm: LLM) -> None:
        self._llm = llm
        self._timer = OpTimer(llm.running.backend)

    def plan(self, entry: str, held: int = 0) -> Json:
        """The ops of a program with the least bytes of a step of one row after `held` rows, or of a chunk.

        Raises RequestError for an unknown entry, or for rows beyond the context.
        """
        plan, n_rows = self._plan(entry), self._rows(entry)
        if not 0 <= held <= self._llm.context - n_rows:
            raise RequestError(
                f"held is {held}, expected 0 to {self._llm.context - n_rows}, rows of the context before a "
                f"step of {n_rows}",
                field="held",
            )
        kernels = self._llm.running.backend.kernels(plan, self._pools)
        counts = Counts(rows={"T": n_rows, "S": 1, "O": 1}, keys=_keys(held, n_rows))
        ops = [
            {"number": number, "op": op.name, "shapes": _shapes(op), "weights": _weights(op),
             "bytes": op_bytes(op, plan, counts), "dispatches": kernels[number].dispatches,
             "kernels": list(kernels[number].names)}
            for number, op in enumerate(plan.ops)
        ]  # fmt: skip
        total = predict_step(plan, n_rows=n_rows, held=held)
        return {
            "entry": entry, "hash": plan.hash(), "rows": n_rows, "held": held, "ops": ops,
            "bytes": total.n_bytes, "flops": total.flops,
            "dispatches": sum(kernel.dispatches for kernel in kernels),
        }  # fmt: skip

    def source(self, entry: str, number: int) -> list[Json]:
        """The kernels of an op: names, and the WGSL that the device gets; "" for kernels without a text.

        Raises RequestError for an unknown entry, or an op that it does not have.
        """
        plan = self._plan(entry)
        if not 0 <= number < len(plan.ops):
            raise RequestError(
                f"op is {number}, expected 0 to {len(plan.ops) - 1}, the ops of {entry}", field="number"
            )
        kernel = self._llm.running.backend.kernels(plan, self._pools)[number]
        return [
            {"name": name, "source": text} for name, text in zip(kernel.names, kernel.sources, strict=True)
        ]

    async def profile(self, held: int) -> Json:
        """Seconds and GB/s of each op of a decode step after `held` rows; `how` names the clock.

        Raises RequestError while an answer runs, whose steps would be in the times, or for rows beyond the
        context.
        """
        if self._llm.running.engine.n_running:
            raise RequestError(
                "an answer runs, here or in another tab; measure after its end", field="profile"
            )
        planned = self.plan(DECODE, held)
        times = await self._timer.times(self._plan(DECODE), held)
        rows = [
            {"number": op["number"], "op": op["op"], "bytes": op["bytes"], "seconds": time.seconds,
             "gbps": op["bytes"] / time.seconds / 1e9 if time.seconds > 0 else None, "alike": time.n_alike}
            for op, time in zip(planned["ops"], times, strict=True)
        ]  # fmt: skip
        seconds = sum(time.seconds for time in times)
        how = {"how": self._timer.how, "repeats": REPEATS}
        return {"held": held, "ops": rows, "seconds": seconds, "bytes": planned["bytes"], **how}

    async def parity(self, records: Sequence[Json], tell: Callable[[int, int], object]) -> Json:
        """Outcomes of recorded cases on the model's device, on a backend that is opened for them.

        Raises RequestError for a damaged record, BackendError if the device cannot be opened a second time.
        """
        options, can = self._llm.running.options, self._llm.capabilities
        how = (options.adapter, options.threads, options.activations)
        backend = await open_named(can.name, *how, compiles_all=True)
        try:
            outcomes = await examine(backend, records, tell)
        finally:
            await backend.close()
        return {"device": can.device, "backend": can.name, "cases": outcomes, **summary(outcomes)}

    def cache(self, sessions: Sequence[Session]) -> Json:
        """Each state group's units by state, and the units of each session's prefix."""
        engine = self._llm.running.engine
        prefixes = [{"id": s.id, "rows": s.cached_rows, "units": s.cached_units()} for s in sessions]
        return {
            "groups": [
                {"name": spec.name, "kind": spec.kind, "kv_type": spec.kv_type, "unit_rows": spec.unit_rows,
                 "unit_bytes": spec.unit_bytes, "units": engine.state.unit_states(spec.name)}
                for spec in engine.state.states
            ],
            "sessions": prefixes, "bytes": engine.state.total_bytes, "evicted": engine.state.n_evicted,
        }  # fmt: skip

    def token_texts(self, token_ids: Sequence[int]) -> list[str]:
        """The text of each token, of control tokens too. Raises RequestError for too many ids."""
        if len(token_ids) > MOST_TOKENS:
            raise RequestError(
                f"{len(token_ids)} token ids, expected at most {MOST_TOKENS}", field="token_ids"
            )
        tokenizer = self._llm.tokenizer
        return [tokenizer.token_bytes(i).decode("utf-8", "backslashreplace") for i in token_ids]

    @property
    def _pools(self) -> Mapping[str, Any]:
        return self._llm.running.engine.state.sizes()

    def _plan(self, entry: str) -> Plan:
        if entry not in ENTRIES:
            raise RequestError(f"entry is {entry!r}, expected {' or '.join(ENTRIES)}", field="entry")
        return self._llm.plan(entry)

    def _rows(self, entry: str) -> int:
        return 1 if entry == DECODE else self._llm.running.deployment.limits.chunk


def _keys(held: int, n_rows: int) -> int:
    """Attended keys, summed over the rows."""
    return sum(held + row + 1 for row in range(n_rows))


def _shapes(op: Op) -> list[str]:
    """Operands but weights, as `camelid explain` writes them."""
    return [f"{role} {operand}" for role, operand in op.operands if isinstance(operand, View | StateRef)]


def _weights(op: Op) -> list[Json]:
    found = [(role, operand) for role, operand in op.operands if isinstance(operand, Weight)]
    return [
        {"role": role, "name": w.name, "type": w.type, "shape": list(w.shape), "bytes": w.n_bytes}
        for role, w in found
    ]
