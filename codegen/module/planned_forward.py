"""The planned forward: a short program over blocks, with the schedule's table above it."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn
from torch.utils import _pytree as pytree

from remat_gen.capture.trace.trace import Traced
from remat_gen.capture.values.kept_places import (
    containers_in,
    is_of_dicts_and_lists,
    items_of,
    made_of,
    split,
)
from remat_gen.codegen.classes.arrange import BlockClass
from remat_gen.codegen.classes.block_parameters import Given
from remat_gen.codegen.classes.block_text import Writer
from remat_gen.codegen.expressions.counted_lines import looped
from remat_gen.codegen.expressions.expressions import Expressions, quoted
from remat_gen.codegen.expressions.marks import Mark, fill, find
from remat_gen.codegen.expressions.parameter_paths import access
from remat_gen.codegen.module.assumption_tables import as_python
from remat_gen.codegen.module.forward_text import ForwardText, ProgramLines
from remat_gen.codegen.module.generated_names import free
from remat_gen.codegen.module.guards import expected_arguments
from remat_gen.codegen.module.programs import written_buffers, written_inputs
from remat_gen.codegen.module.returned_value import ResultWriter
from remat_gen.codegen.module.schedule_table import schedule_table
from remat_gen.codegen.statements.gradient_reach import read_on
from remat_gen.codegen.statements.kept_outputs import returned
from remat_gen.codegen.statements.statements import Body
from remat_gen.ir.errors import EmitError, UsageError
from remat_gen.ir.graph import Kind, Output
from remat_gen.ir.rung import Rung
from remat_gen.ir.size import Length, lengths_in


@dataclass(frozen=True, slots=True)
class ForwardWriter:
    """Writes the planned forward of a traced model from its named classes.

    `others` are the programs that steps of their rungs run in place of this one.
    """

    traced: Traced
    model: nn.Module
    writers: dict[BlockClass, Writer]
    names: dict[BlockClass, str]
    others: tuple[tuple[Rung, ForwardWriter], ...] = ()

    def write(self, parameters: str, returns: str, namespace: Mapping[str, object]) -> ForwardText:
        """Return the text; `parameters` and `returns` are the user's own signature."""
        signature = inspect.signature(type(self.model).forward)
        taken = self._taken(signature)
        step, known = (free(name, taken) for name in ("step", "known"))
        lengths = self._length_names(taken | {step, known})
        taken |= {step, known, *lengths.values()}
        frame = _Frame(step, frozenset(taken), lengths, returns, namespace)
        own = self._lines(frame)
        return ForwardText(
            parameters=parameters,
            returns=returns,
            passed=passed(signature, len(self.traced.call.args)),
            known=known,
            expected=expected_arguments(self.traced, type(self.model).forward),
            read_lengths=self._read_lengths(),
            fixed=", ".join(f"{quoted(path)}: {path}" for path in self.traced.call.fixed),
            apart=self._apart(),
            lengths=tuple(f"{lengths[n.name]} = {_read(n)}" for n in self._lengths_used()),
            ones=tuple(map(_read, ones_of(self.traced.graph.lengths))),
            kept="".join(f", {n.name}={lengths[n.name]}" for n in self._lengths_used()),
            table=own.table,
            step=step,
            calls=own.calls,
            watched=own.watched,
            stored=own.stored,
            containers=own.containers,
            result=own.result,
            autocast=self.traced.autocast.device if self.traced.autocast else "",
            imports=own.imports,
            rungs=tuple(self._rungs(own, frame)) if self.others else (),
            recorded=", ".join(self._recorded()),
            flagged=tuple(
                looped([*map(_unflagged, self.traced.returned.flagged)], free("i", taken))
            ),
            settles=bool(self.traced.first or self.traced.turned),
        )

    def _recorded(self) -> list[str]:
        graph = self.traced.graph
        return ["self"] * bool(written_buffers(graph)) + written_inputs(graph)

    def _apart(self) -> str:
        """Return the call that refuses inputs that are one, where forward does something else."""
        graph = self.traced.graph
        asks, writes = self.traced.reads.asks_identity, written_inputs(graph)
        read = {storage for operation in graph.operations for storage in graph.reads(operation)}
        paths = [
            given.path
            for given in graph.inputs
            if given.kind is Kind.INPUT
            and (asks or given.path in writes or graph.storage_of(given.tensor).name in read)
        ]
        if len(paths) < 2 or not (writes or asks):
            return ""
        are_one = "share_memory" if writes else "operator.is_"
        rows = ", ".join(f"{quoted(path)}: {path}" for path in paths)
        return f"check_apart({{{rows}}}, {are_one})"

    def _lines(self, frame: _Frame) -> ProgramLines:
        outputs = self._output_names(set(frame.taken))
        leaves = self._leaves(outputs, dict(frame.lengths))
        writer = ResultWriter(leaves, namespace=frame.namespace)
        value = self.traced.returned.value
        result = writer.write(value)
        if type(value) is tuple and len(value) > 1:
            result = result[1:-1]
        stored = [*self._stored(frame, leaves), *self._rebuilt(writer)]
        own = [name for output, name in outputs.items() if not output.kept]
        typed = _typed(own, result, frame.returns)
        names = {*frame.taken, *outputs.values()}
        return ProgramLines(
            table=schedule_table([(body, self.writers[c]) for body, c in self._instances()]),
            calls=tuple(looped([*self._calls(frame.step, typed)], free("i", names))),
            watched=", ".join(outputs[o] for o in read_on(self.traced.graph)),
            stored=tuple(looped(stored, free("i", names))),
            containers=tuple(looped([*self._containers(frame.lengths)], free("i", names))),
            result=result,
            imports=writer.imports,
        )

    def _stored(self, frame: _Frame, leaves: Iterator[str]) -> Iterator[str]:
        """Yield what puts on the model what forward keeps there, where a block has not."""
        for path in self.traced.returned.kept:
            leaf = next(leaves)
            if leaf != (target := self._attribute(path)):
                yield f"{target} = {leaf}"
        containers = containers_in(self.traced.put)
        made = tuple(f"{path.removesuffix('[:]')}[" for path in containers)
        for path, value in self.traced.put.items():
            if path not in containers and not path.startswith(made):
                yield f"{self._attribute(path)} = {as_python(value, frame.lengths)}"
        unset = (path for path in self.traced.unset if not path.startswith(made))
        yield from (f"{frame.step}.put({quoted(path)}, None)" for path in unset)

    def _containers(self, lengths: Mapping[str, str]) -> Iterator[str]:
        """Yield what makes the containers that forward makes anew, with its plain values.

        Those are dicts and lists until all of their tensors are there.
        """

        def text_of(value: Any, path: str) -> str:
            items = {key: text_of(item, f"{path}[{key}]") for key, item in items_of(value)}
            if value is ...:
                return as_python(self.traced.put.get(path), lengths)
            if isinstance(value, list | tuple):
                return f"[{', '.join(items.values())}]"
            return f"{{{', '.join(f'{as_python(key)}: {text}' for key, text in items.items())}}}"

        for path, value in containers_in(self.traced.put).items():
            yield self._made(path, text_of(value, path.removesuffix("[:]")), value)

    def _rebuilt(self, writer: ResultWriter) -> Iterator[str]:
        """Yield what makes of these dicts and lists what forward makes: a tuple, a dataclass."""

        def named(value: Any, path: str) -> Any:
            held = self._attribute(path)
            if isinstance(value, tuple) and all(item is ... for item in value):
                return tuple.__new__(type(value), (f"*{held}",))  # as if that were one item
            items = {key: named(item, f"{path}[{key}]") for key, item in items_of(value)}
            return held if value is ... else made_of(value, items)

        for path, value in containers_in(self.traced.put).items():
            if not is_of_dicts_and_lists(value):
                found = named(value, path.removesuffix("[:]"))
                writer.leaves = iter(pytree.tree_leaves(found))
                yield self._made(path, writer.write(found), value)

    def _made(self, path: str, text: str, value: Any) -> str:
        inside = path.removesuffix("[:]")
        if inside != path and isinstance(value, dict):
            return f"{self._attribute(inside)}.update({text})"
        return f"{self._attribute(path)} = {text}"

    def _attribute(self, path: str) -> str:
        """Write where something is put on the model, past what its class may make of that."""
        owner, name, keys = split(path)
        items = "".join(f"[{quoted(key) if _is_name(key) else key}]" for key in keys)
        plain = type(self.model.get_submodule(owner)).__setattr__ is nn.Module.__setattr__
        where = access("self", self.model, owner)
        odd = not name.isidentifier() or keyword.iskeyword(name) or not name.isascii()
        attribute = f"vars({where})[{quoted(name)}]" if odd or not plain else f"{where}.{name}"
        return f"{attribute}{items}"

    def _rungs(self, own: ProgramLines, frame: _Frame) -> Iterator[ProgramLines]:
        """Yield the programs in the order in which a step asks them; this one is for all."""
        taken = set(frame.taken)
        for rung, writer in self.others:
            asked = [f"{frame.lengths[name]} <= {n}" for name, n in rung.limits.items()]
            asked += [f"free_bytes() >= {rung.free_bytes:_}"] if rung.free_bytes else []
            name = free("_".join(("run", *rung.words)).lower(), taken)
            taken.add(name)
            yield replace(writer._lines(frame), name=name, condition=" and ".join(asked))
        yield replace(own, name=free("run_any", taken))

    def _taken(self, signature: inspect.Signature) -> set[str]:
        """Return the names that a variable of the planned forward must not have.

        Raises:
            UsageError: the user's parameters hide what the planned forward calls.
        """
        parameters = list(signature.parameters)
        called = {"torch", "PlannedStep", "check_planned", *self.names.values()}
        called |= {"NextIfOutOfMemory", "free_bytes"} if self.others else set()
        called.update(name for _, other in self.others for name in other.names.values())
        if self.traced.call.fixed:
            called.add("check_fixed")
        if self._apart():
            called |= {"check_apart", "share_memory", "operator"}
        if read_on(self.traced.graph):
            called.add("watch_outputs")
        if ones_of(self.traced.graph.lengths):
            called.add("is_one")
        clash = sorted(called.intersection(parameters))
        if clash:
            raise UsageError(
                f"forward has a parameter {clash[0]!r}, which hides what the generated forward "
                "calls: rename it"
            )
        return {*parameters, *called, *keyword.kwlist}

    def _instances(self) -> list[tuple[Body, BlockClass]]:
        pairs = [(body, c) for c in self.writers for body in c.bodies]
        return sorted(pairs, key=lambda pair: pair[0].block)

    # -- lengths that vary ---------------------------------------------------------------------

    def _read_lengths(self) -> str:
        """Write how the lengths are read that the arguments are compared for, or ""."""
        lengths = self.traced.graph.lengths
        rows = (f"{quoted(str(length))}: {_read(length)}" for length in lengths)
        return f", lambda: {{{', '.join(rows)}}}" if lengths else ""

    def _lengths_used(self) -> list[Length]:
        """Return the lengths that a block needs, or what the model returns."""
        every = [*self.writers.values(), *(w for _, o in self.others for w in o.writers.values())]
        used = {name for writer in every for name in writer.lengths}
        used.update(name for rung, _ in self.others for name in rung.limits)
        outputs = self.traced.graph.outputs
        said = (*(output.constant for output in outputs), *self.traced.put.values())
        used.update(name for value in said for name in lengths_in(value))
        used.update(mark.name for o in outputs for mark in self._marks(o) if mark.kind == "length")
        return [length for length in self.traced.graph.lengths if length.name in used]

    def _marks(self, output: Output) -> Sequence[Mark]:
        """Return the marks in what stands for an output that is none of the last block's."""
        if output.tensor is None or not self.traced.graph.storage_of(output.tensor).kind.outside:
            return ()
        return find(Expressions(self.traced.graph, _nowhere).tensor(output.tensor))

    def _length_names(self, taken: set[str]) -> dict[str, str]:
        return {length.name: free(length.name, taken) for length in self.traced.graph.lengths}

    # -- calls -----------------------------------------------------------------------------

    def _calls(self, step: str, outputs: list[str]) -> Iterator[str]:
        given = {c: Given(self.traced.graph, c, writer.names) for c, writer in self.writers.items()}
        for body, block_class in self._instances():
            target = f"{', '.join(outputs)} = " if body.last else ""
            arguments = [self.names[block_class], *given[block_class].arguments(body)]
            at = block_class.bodies.index(body)
            numbers = {name: own[at] for name, own in block_class.numbers.items()}
            arguments += [f"{name}={number}" for name, number in numbers.items() if number]
            yield f"{target}{step}.run({', '.join(arguments)})"

    # -- inputs and outputs -------------------------------------------------------------------

    def _output_names(self, taken: set[str]) -> dict[Output, str]:
        """Return a variable for what leaves the last block, the attribute of what blocks keep."""
        names: dict[Output, str] = {}
        for body, _ in self._instances():
            for output in returned(self.traced.graph, body.forward.returns):
                if output.tensor is None:
                    raise EmitError(f"an output of block {body.block} has no tensor")
                hint = self.traced.graph.tensors[output.tensor].hint
                names[output] = self._attribute(output.kept) if output.kept else free(hint, taken)
                taken.add(names[output])
        return names

    def _leaves(self, names: dict[Output, str], lengths: dict[str, str]) -> Iterator[str]:
        for output in self.traced.graph.outputs:
            yield self._leaf(output, names, lengths)

    def _leaf(self, output: Output, names: dict[Output, str], lengths: dict[str, str]) -> str:
        if output.tensor is None:
            return as_python(output.constant, lengths)
        if output in names:
            return names[output]

        def spell(mark: Mark) -> str:
            return lengths[mark.name] if mark.kind == "length" else self._outside(mark)

        text = fill(Expressions(self.traced.graph, _nowhere).tensor(output.tensor), spell)
        storage = self.traced.graph.tensors[output.tensor].storage
        carries = any(i.tensor == storage and i.requires_grad for i in self.traced.graph.inputs)
        return f"{text}.detach()" if carries and not output.requires_grad else text

    def _outside(self, mark: Mark) -> str:
        (found,) = (i for i in self.traced.graph.inputs if i.tensor == mark.name)
        return found.path if found.kind is Kind.INPUT else access("self", self.model, found.path)


@dataclass(frozen=True, slots=True)
class _Frame:
    """What is around the lines of a program: the step's variable, names, the user's annotation."""

    step: str
    taken: frozenset[str]
    lengths: Mapping[str, str]
    returns: str
    namespace: Mapping[str, object]


def _unflagged(name: str) -> str:
    return f"self.get_buffer({quoted(name)}).requires_grad_(False)"


def _typed(outputs: list[str], result: str, returns: str) -> list[str]:
    """Say the type of a tensor that is returned as it is; an autograd function's is Any."""
    return [f"{result}: Tensor"] if outputs == [result] and returns == " -> Tensor" else outputs


def ones_of(lengths: Iterable[Length]) -> list[Length]:
    """Return the lengths that a plan is for from 2 on: a 1 is run by the original forward."""
    return [length for length in lengths if length.minimum == 2]


def _read(length: Length) -> str:
    """Write how a length is read from the arguments: `x.shape[0]`."""
    path, dim = length.dims[0]
    return f"{path}.shape[{dim}]"


_STARS: Mapping[object, str] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}


def passed(signature: inspect.Signature, by_position: int) -> str:
    """Return the arguments that hand a call on unchanged: `ids, *rest, mask=mask, **options`.

    What has a default, and the example does not give by its position, goes by name: decorators of
    forward may add it to the names (`use_cache` of transformers' models).
    """
    words = []
    _, *parameters = signature.parameters.items()
    rest = any(parameter.kind is parameter.VAR_POSITIONAL for _, parameter in parameters)
    for number, (name, parameter) in enumerate(parameters):
        prefix = _STARS.get(parameter.kind, "")
        optional = parameter.kind is parameter.POSITIONAL_OR_KEYWORD and not rest
        optional &= parameter.default is not parameter.empty and number >= by_position
        keyword = optional or parameter.kind is parameter.KEYWORD_ONLY
        words.append(f"{name}={name}" if keyword else f"{prefix}{name}")
    return ", ".join(words)


def _nowhere(storage: str) -> Mark:
    raise EmitError(f"{storage} does not leave the last block")


def _is_name(key: str) -> bool:
    return not key.isdigit() and key != ":"
