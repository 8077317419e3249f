"""Buffers that forward makes in its first run: a model is planned as that run leaves it.

A table of positions that is registered where it is None, or replaced where it is too short. It is
one like any other once it is there; a generated module lets forward make it in a fresh model's
first step. That the first run does the same as later ones is compared, never assumed. One that is
there, and that the first run alone writes into, is as one that this run puts in its place.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from remat_gen.capture.first_step.compared_runs import Run, same_tensors, values_kept
from remat_gen.capture.load.arguments import Call
from remat_gen.capture.load.shorter_call import shortened
from remat_gen.capture.observe.assumed import File, describe, described, layout_of
from remat_gen.capture.observe.repeats import Reads
from remat_gen.capture.process.operands import lack_values, storage_of
from remat_gen.capture.refuse.refusals import ReplacedError
from remat_gen.capture.values.holding import Holding, held_as_before
from remat_gen.capture.values.recorded import Looks, run_recorded
from remat_gen.capture.values.side_effects import refused_shared_changes
from remat_gen.ir.errors import TraceError
from remat_gen.ir.graph import Graph, Kind
from remat_gen.ir.size import Length


@dataclass(frozen=True, slots=True)
class FirstRun:
    """The buffers that a first run `made`, and those that every run makes `again`, equal ones.

    Of those made, the ones in `filled` were there: they get other numbers. The model is left as it
    is `fresh`, and has them while it is `held`.
    """

    made: tuple[str, ...]
    filled: tuple[str, ...]
    again: tuple[str, ...]
    fresh: Holding
    settled: Holding

    def refuse_shorter(self, model: nn.Module, call: Call, lengths: Iterable[Length]) -> None:
        """Refuse lengths that vary where a shorter first step makes other buffers."""
        lengths = tuple(lengths)
        whole = self._described(dict(model.named_buffers()))
        with held_as_before(model):
            self.fresh.put_back()
            try:
                run = Run.of(model, shortened(call, lengths))
                left = {name: run.buffers[name] for name in self.filled}
                shorter = self._described(dict(model.named_buffers()) | left)
            except Exception:  # of the user's own code
                shorter = {}
        for name, described_so in whole.items():
            if shorter.get(name) != described_so:
                raise TraceError(
                    f"forward makes another self.{name} in its first step where that is shorter "
                    f"({', '.join(map(str, lengths))}): make the buffer in __init__"
                )

    def _described(self, buffers: Mapping[str, Tensor]) -> dict[str, str]:
        found = {name: layout_of(buffers[name]) for name in self.made if name in buffers}
        by_value = [name for name in (*self.again, *self.filled) if name in buffers]
        return found | {name: describe(buffers[name]) for name in by_value}

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Let the model be as the first run leaves it."""
        self.settled.put_back()
        try:
            yield
        finally:
            self.fresh.put_back()

    def compared(self, model: nn.Module, reads: Reads, refused: TraceError) -> Reads:
        """Add what a fresh model is known by, while it is `held`: values, where no layout tells.

        Raises:
            TraceError: `refused`, where those would be of a buffer that was there: the next model
                may fill it with others.
        """
        words, found = self.words(model, reads), list(self.again)
        for name in self.made:
            owner = name.rpartition(".")[0]
            if not any(path == owner or path.rpartition(".")[0] == owner for path in words):
                if name in self.filled:
                    raise refused
                found.append(name)
        return reads.with_paths(tuple(found))

    def words(self, model: nn.Module, reads: Reads) -> dict[str, str]:
        """Describe the fresh model where the first run makes another of it, while it is `held`."""
        file = File(reads.file)
        now = dict(described(model, reads.paths, file))
        self.fresh.put_back()
        try:
            before = dict(described(model, reads.paths, file))
        finally:
            self.settled.put_back()
        return {path: said for path, said in before.items() if said != now.get(path)}

    def refuse_written(self, graph: Graph) -> None:
        """Refuse a step that writes into what the first run makes, or into what it is given.

        A generated module's first run would do so once more.
        """
        written = {mutation.target for mutation in graph.mutations}
        for given in graph.inputs:
            if given.tensor not in written:
                continue
            if given.kind is Kind.INPUT or given.path in self.made:
                raise ReplacedError(
                    f"forward makes self.{self.made[0]} in its first step, and writes into "
                    f"{given.path} in each: make the buffer in __init__"
                )


def first_run(model: nn.Module, call: Call, refused: TraceError) -> FirstRun:
    """Run a model's forward for real, for the buffers that its first step makes.

    It runs once more for what a later step does. The model, and random streams, are as before;
    nothing is kept for backward.

    Raises:
        TraceError: `refused`, where no buffer is made, or where a later run goes on otherwise.
    """
    given = [leaf.value for leaf in call.leaves if isinstance(leaf.value, Tensor)]
    if lack_values((*model.parameters(), *model.buffers(), *given)):
        raise refused
    fresh = Holding.of(model)
    try:
        with refused_shared_changes(model):
            return _compared(model, call, fresh, refused)
    except TraceError:
        raise refused from None
    except Exception as error:  # of the user's own code
        raise refused from error
    finally:
        fresh.put_back()


def _compared(model: nn.Module, call: Call, fresh: Holding, refused: TraceError) -> FirstRun:
    before = dict(model.named_buffers())
    parameters = dict(model.named_parameters())
    first = Run.of(model, call)
    filled = _filled(model, call, first, before)
    for name, value in filled.items():
        owner, _, attribute = name.rpartition(".")
        model.get_submodule(owner)._buffers[attribute] = value
    settled = Holding.of(model)
    buffers = dict(model.named_buffers())
    made = tuple(name for name, tensor in buffers.items() if before.get(name) is not tensor)
    if not made:
        raise refused
    second = Run.of(model, call)
    later = dict(model.named_buffers())
    settled.put_back()
    again = tuple(name for name, tensor in later.items() if buffers.get(name) is not tensor)
    same_names = buffers.keys() >= before.keys() and later.keys() == buffers.keys()
    same_parameters = _are_same(parameters, dict(model.named_parameters()))
    others = [t for name, t in (*parameters.items(), *buffers.items()) if name not in made]
    if not (
        same_names
        and same_parameters
        and first.does_as(second)
        and _stand_alone([buffers[name] for name in made], others)
        and _constant(model, call, again)
    ):
        raise refused
    return FirstRun(made, tuple(filled), again, fresh, settled)


def _filled(
    model: nn.Module, call: Call, first: Run, before: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return the buffers that a first run wrote into and a later one leaves, with these numbers."""
    there = {n: b for n, b in model.named_buffers() if before.get(n) is b}
    written = {n: b for n, b in there.items() if not same_tensors(b, first.buffers[n])}
    if not written:
        return {}
    with held_as_before(model), values_kept(model):
        with torch.no_grad():
            for name, buffer in written.items():
                buffer.copy_(first.buffers[name])
        later = Run.of(model, call).buffers
    values = {name: first.buffers[name] for name in written if name in later}
    return {name: value for name, value in values.items() if same_tensors(value, later[name])}


def _are_same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(one[name] is other[name] for name in one)


def _stand_alone(made: list[Tensor], others: list[Tensor]) -> bool:
    """Tell whether buffers have memory of their own, and no gradient flows through them."""
    plain = all(t.layout is torch.strided and not t.requires_grad for t in made)
    places = [storage_of(t) for t in made]
    return plain and len({*places}) == len(places) and {*map(storage_of, others)}.isdisjoint(places)


def _constant(model: nn.Module, call: Call, names: tuple[str, ...]) -> bool:
    """Tell whether what every run makes anew follows from nothing that may be another one."""
    if not names:
        return True
    with held_as_before(model):
        run = run_recorded(model, call, Looks())
    return run is not None and all(run.is_constant(run.state[name]) for name in names)
