"""Layers that differ in a few lines are one class: which blocks run them stands in the text."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from emitting import HEAD, Emitted, assert_bitwise, at_share, emit
from random_schedules import random_schedule

from remat_gen.codegen.classes.arrange import group
from remat_gen.codegen.classes.own_views import DiffersError, without_views
from remat_gen.codegen.classes.variants import as_one, owned_by_one
from remat_gen.codegen.expressions.marks import kept, value
from remat_gen.codegen.statements.bodies import write_bodies
from remat_gen.codegen.statements.statements import Body, Function, Statement
from remat_gen.ir.graph import Graph
from remat_gen.solver.blocks.partition import partition
from remat_gen.solver.blocks.simple_programs import per_layer
from remat_gen.solver.law.liveness import to_schedule

DECODER = (
    HEAD
    + """
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.read = nn.Linear(16, 16)
        self.mix = nn.Linear(24, 16)
        self.up = nn.Linear(16, 128)
        self.down = nn.Linear(128, 16)

    def forward(self, x, memory):
        y = self.norm(x)
        x = x + self.mix(torch.tanh(y @ self.read(memory).transpose(1, 2)))
        return x + self.down(F.gelu(self.up(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(16, 16)
        self.embed = nn.Linear(16, 16)
        self.layers = nn.ModuleList(Layer() for _ in range(5))
        self.head = nn.Linear(16, 4)

    def forward(self, source, target):
        memory, x = torch.tanh(self.encoder(source)), self.embed(target)
        for layer in self.layers:
            x = layer(x, memory)
        return self.head(x).square().mean()


def build_model():
    return Net()


def example_inputs():
    return torch.randn(2, 24, 16), torch.randn(2, 16, 16)
"""
)


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Emitted:
    return emit(
        tmp_path_factory.mktemp("decoder"),
        DECODER,
        lambda p: to_schedule(p, per_layer(p, partition(p))),
    )


def test_all_that_read_one_memory_are_one_class(decoder: Emitted) -> None:
    layers = re.findall(r"step\.run\((\w+), \"layers", decoder.text)
    assert len(set(layers[1:])) == 1, "the first layer ends with the encoder's gradient"
    # the last layer begins the memory's gradient, the others add to it
    begins, adds = decoder.text.split("if self.at in (2, 3, 4):")[1:]
    assert re.search(r"else:\n +self\.d_memory, g\.read_weight", begins)
    assert re.match(r"\s+self\.d_memory = after\.d_memory\.view\(2, 24, 16\)\.add_\(", adds)
    assert_bitwise(decoder)


def test_a_memory_that_is_read_again_by_layers_is_bitwise(tmp_path: Path) -> None:
    assert_bitwise(emit(tmp_path, DECODER, at_share("rockmate", 0.2)))


@pytest.mark.parametrize("seed", range(8))
def test_each_block_runs_what_it_ran_before(decoder: Emitted, seed: int) -> None:
    graph, problem = decoder.traced.graph, decoder.problem
    schedule = random_schedule(problem, seed, limit=20, share=0.05 * (seed % 3))
    bodies = write_bodies(graph, problem, schedule)
    for block_class in group(graph, bodies, decoder.loaded.model):
        for body in block_class.bodies:
            for half in ("forward", "backward"):
                before = lines_of(getattr(bodies[body.block], half), body.block)
                assert lines_of(getattr(body, half), body.block) == before


def lines_of(function: Function, block: int) -> list[tuple[str, frozenset[object]]]:
    """Return what a block runs: each line, and what is freed behind it, in any order."""
    found: list[tuple[str, frozenset[object]]] = [("", frozenset())]
    for statement in function.statements:
        if statement.runs_in(block) and statement.text:
            found.append((without_views(statement.text), frozenset()))
        elif statement.runs_in(block):
            found[-1] = (found[-1][0], found[-1][1] | frozenset(statement.frees))
    return found


@cache
def no_graph() -> Graph:
    return Graph((), (), (), {}, {}, (), (), ())


def body_of(block: int, *backward: Statement) -> Body:
    return Body(block, Function((), {}), Function(backward, {}), ())


def lines(block: int, count: int = 20) -> list[Statement]:
    return [Statement(f"{value(f'{block}.{i}')} = f{i}({kept(0, 'x')})") for i in range(count)]


def test_what_one_does_stands_under_its_number() -> None:
    more = Statement(f"{value('1.more')} = g({value('1.3')})")
    one, other = body_of(1, *lines(1), more), body_of(2, *lines(2))
    first, second = as_one(no_graph(), [one], [other], frozenset())
    assert [s.blocks for s in first.backward.statements] == [()] * 20 + [(1,)]
    assert [s.text for s in second.backward.statements[:20]] == [s.text for s in lines(2)]
    assert owned_by_one([first, second]) == {kept(0, "x")}


def test_what_is_run_again_by_one_alone_is_seen() -> None:
    again = Statement(f"{value('1.y')} = g({value('1.3')})", again=str(value("1.y")), remade=4)
    with pytest.raises(DiffersError):
        as_one(no_graph(), [body_of(1, *lines(1), again)], [body_of(2, *lines(2))], frozenset())


def test_many_lines_of_their_own_are_two_classes() -> None:
    more = [Statement(f"{value(f'1.g{i}')} = g{i}()") for i in range(7)]
    with pytest.raises(DiffersError):
        as_one(no_graph(), [body_of(1, *lines(1), *more)], [body_of(2, *lines(2))], frozenset())


def test_another_value_in_the_same_place_is_another_class() -> None:
    ours = Statement(f"{value('1.y')} = g({value('1.3')}, {value('1.4')})")
    theirs = Statement(f"{value('2.y')} = g({value('2.4')}, {value('2.3')})")
    one, other = body_of(1, *lines(1), ours), body_of(2, *lines(2), theirs)
    with pytest.raises(DiffersError):
        as_one(no_graph(), [one], [other], frozenset())


def test_what_lies_neither_in_one_block_nor_at_one_distance_is_another_class() -> None:
    one = body_of(5, Statement(f"{value('y')} = f({kept(1, 'a')})"))
    other = body_of(6, Statement(f"{value('z')} = f({kept(3, 'b')})"))
    with pytest.raises(DiffersError):
        owned_by_one(as_one(no_graph(), [one], [other], frozenset()))
