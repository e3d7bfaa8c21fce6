"""A running model whose linear maps are observed: mean squares of their inputs, for importance matrices."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from camelid.formats.imatrix import Sums
from camelid.formats.progress import Progress
from camelid.loading.choose import choose_backend
from camelid.loading.deployment import Deployment
from camelid.loading.model_file import ModelName, open_model
from camelid.loading.options import LoadOptions
from camelid.loading.start import RunningModel, start_engine
from camelid.plan.weights import Part, Weight

if TYPE_CHECKING:
    from camelid.backends.common.observer import Observer

LAYERS = "blk."  # names of tensors in layers


@dataclass(frozen=True, slots=True)
class ObservedModel:
    """A running model, and the observer of its backend."""

    running: RunningModel
    observer: Observer

    def sums(self) -> dict[str, Sums]:
        """Sums so far, by the names of the file's tensors."""
        return {name: Sums(*each.arrays()) for name, each in self.observer.sums.items()}


async def start_observed(
    model: ModelName, options: LoadOptions, *, with_output: bool, progress: Progress | None = None
) -> ObservedModel:
    """Loads a model as `start` does, with an observer. Without `with_output` only layers are observed.

    Raises UnsupportedModelError for a plan whose inputs cannot be observed, and the errors of `start`.
    """
    from camelid.backends.common.observer import Observer

    report: Progress = progress or (lambda activity, stage, n_stages: None)
    options.check()
    file = await open_model(model, progress=progress)
    chosen = await choose_backend(options, file.model)
    names_of = names_by_bytes(file.checkpoint.tensors, with_output=with_output)
    observer = Observer(chosen.backend, names_of)
    backend = observer.as_backend()
    try:
        deployment = Deployment.of(file.model, options, observer.capabilities())
        file = replace(file, model=deployment.model)
        engine = await start_engine(file, backend, deployment, options, report)
    except BaseException:
        await chosen.backend.close()
        raise
    return ObservedModel(RunningModel(file, backend, chosen.note, deployment, engine, options), observer)


def names_by_bytes(
    tensors: Mapping[str, Weight], *, with_output: bool
) -> Callable[[Weight], tuple[str, ...]]:
    """A function from a weight of a plan to the names of the file's tensors that have its bytes: a plan cuts
    fused tensors and joins others."""
    places = sorted(
        (part.source, part.offset, part.offset + part.n_bytes, name)
        for name, weight in tensors.items()
        for part in weight.parts
        if with_output or name.startswith(LAYERS)
    )

    def name_of(part: Part) -> str:
        at = bisect_right(places, (part.source, part.offset, float("inf"), "")) - 1
        source, start, end, name = places[at] if at >= 0 else ("", 0, 0, "")
        return name if source == part.source and start <= part.offset < end else ""

    return lambda weight: tuple(dict.fromkeys(name for part in weight.parts if (name := name_of(part))))
