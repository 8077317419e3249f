"""Layers that differ in a few lines are one class: which blocks run them stands in the text."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from emitting import HEAD, Emitted, assert_bitwise, at_share, blocks_run, emit
from random_schedules import random_schedule

from remat_gen.codegen.classes.arrange import _with_owners, group
from remat_gen.codegen.classes.own_views import DiffersError, without_views
from remat_gen.codegen.classes.variants import as_one, owners_of
from remat_gen.codegen.expressions.marks import Mark, fill, kept, number, value
from remat_gen.codegen.statements.bodies import write_bodies
from remat_gen.codegen.statements.statements import Body, Function, Statement
from remat_gen.ir.graph import Graph
from remat_gen.solver.blocks.partition import partition
from remat_gen.solver.blocks.simple_programs import per_layer
from remat_gen.solver.law.liveness import to_schedule

EXAMPLES = Path(__file__).parents[2] / "examples"
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


def in_layers(factory: pytest.TempPathFactory, source: str) -> Emitted:
    """Plan a model so that each layer runs again whole."""
    folder = factory.mktemp("in_layers")
    return emit(folder, source, lambda p: to_schedule(p, per_layer(p, partition(p))))


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Emitted:
    return in_layers(tmp_path_factory, DECODER)


def test_all_that_read_one_memory_are_one_class(decoder: Emitted) -> None:
    layers = [name for name, *at in blocks_run(decoder.text) if at and at[0].startswith("layers")]
    assert len(set(layers[1:])) == 1, "the first layer ends with the encoder's gradient"
    # the last layer begins the memory's gradient, the others add to it
    begins, adds = decoder.text.split("if self.at in (2, 3, 4):")[1:]
    assert re.search(r"else:\n +self\.d_memory, g\.read_weight", begins)
    assert re.match(r"\s+self\.d_memory = after\.d_memory\.view\(2, 24, 16\)\.add_\(", adds)
    assert_bitwise(decoder)


def test_a_memory_that_is_read_again_by_layers_is_bitwise(tmp_path: Path) -> None:
    assert_bitwise(emit(tmp_path, DECODER, at_share("rockmate", 0.2)))


U_NET = (EXAMPLES / "unet.py").read_text().replace("IMAGE = 96", "IMAGE = 32")


@pytest.fixture(scope="module")
def u_net(tmp_path_factory: pytest.TempPathFactory) -> Emitted:
    return in_layers(tmp_path_factory, U_NET)


def test_layers_are_handed_their_partner_and_the_ends_of_slices(u_net: Emitted) -> None:
    calls = re.findall(r"step\.run\((\w+), \"(\w+)\.\d\".*?, partner=(\d)\)", u_net.text)
    assert len(calls) == 4 and len({(name, way) for name, way, _ in calls}) == 2
    partners = {w: [int(partner) for _, way, partner in calls if way == w] for w in ("down", "up")}
    assert partners == {"down": [9, 8], "up": [2, 0]}, "the layers of their sizes on the other way"
    assert "partner, before = step[self.partner], step[self.at - 1]" in u_net.text
    ends = re.findall(r"step\.run\((\w+), .*?, start=(\d+), stop=(\d+)\)", u_net.text)
    assert [(int(start), int(stop)) for _, start, stop in ends] == [(64, 128), (32, 64)]
    assert_bitwise(u_net)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_upper_layers_of_other_schedules_are_bitwise(tmp_path: Path, share: float) -> None:
    assert_bitwise(emit(tmp_path, U_NET, at_share("rockmate", share)))


@pytest.mark.parametrize("name", ["decoder", "u_net"])
@pytest.mark.parametrize("seed", range(8))
def test_each_block_runs_what_it_ran_before(
    name: str, seed: int, request: pytest.FixtureRequest
) -> None:
    emitted: Emitted = request.getfixturevalue(name)
    graph, problem = emitted.traced.graph, emitted.problem
    schedule = random_schedule(problem, seed, limit=20, share=0.05 * (seed % 3))
    bodies = write_bodies(graph, problem, schedule)
    for block_class in group(graph, bodies, emitted.loaded.model):
        for i, body in enumerate(block_class.bodies):
            own = {str(number(name)): row[i] for name, row in block_class.numbers.items()}
            for half in ("forward", "backward"):
                before = lines_of(getattr(bodies[body.block], half), body.block, {})
                assert lines_of(getattr(body, half), body.block, own) == before
            for mark, partner in block_class.partners.items():
                theirs = dict(zip(marks_of(block_class.body), marks_of(body), strict=True))
                looks = mark in theirs and own[str(number(partner))]
                assert not looks or int(looks) == theirs[mark].owner


def marks_of(body: Body) -> list[Mark]:
    return [*body.forward.marks(), *body.backward.marks()]


def lines_of(
    function: Function, block: int, numbers: dict[str, str]
) -> list[tuple[str, frozenset[object]]]:
    """Return what a block runs: each line, and what is freed behind it, in any order."""
    found: list[tuple[str, frozenset[object]]] = [("", frozenset())]
    for statement in function.statements:
        if statement.runs_in(block) and statement.text:
            text = fill(statement.text, lambda mark: numbers.get(str(mark), str(mark)))
            found.append((without_views(text), frozenset()))
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
    assert owners_of([first, second]).fixed == {kept(0, "x")}


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


def reading(block: int, owner: int) -> Body:
    return body_of(block, Statement(f"{value(f'{block}.y')} = f({kept(owner, f'{owner}.x')})"))


def test_each_block_has_a_partner_of_its_own() -> None:
    owners = owners_of([reading(5, 3), reading(6, 2), reading(7, 1)])
    assert owners.fixed == frozenset()
    assert owners.partners == {kept(3, "3.x"): ("3", "2", "1")}


def test_what_is_returned_is_looked_for_as_well() -> None:
    def returning(block: int, partner: int) -> Body:
        gradient = {"w": f"{kept(partner, f'{partner}.x')}.clone()"}
        return Body(block, Function((), {}), Function((), gradient), ())

    owners = owners_of([returning(5, 3), returning(6, 2), returning(7, 1)])
    assert owners.partners == {kept(3, "3.x"): ("3", "2", "1")}


def test_what_lies_at_one_distance_for_some_alone_is_another_class() -> None:
    with pytest.raises(DiffersError):
        owners_of([reading(5, 1), reading(6, 3), reading(7, 4)])


def test_readers_of_few_owners_are_one_class_where_each_can_be_told() -> None:
    """Turns of two layers' recurrences read what their layer made before the first."""
    turns = [*range(3, 8), *range(14, 19)]
    bodies = [reading(block, 2 if block < 9 else 13) for block in turns]
    (together,) = _with_owners(bodies)
    assert together.owners.partners[kept(2, "2.x")] == ("2",) * 5 + ("13",) * 5
    apart = _with_owners([reading(3, 2), reading(4, 2), reading(14, 13)])
    assert [[body.block for body in c.bodies] for c in apart] == [[3, 14], [4]]


STAGES = (
    HEAD
    + """
class Stage(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.GroupNorm(1, width)
        self.up, self.down = nn.Conv2d(width, 2 * width, 1), nn.Conv2d(2 * width, width, 1)
        self.scale = nn.Parameter(torch.full((width,), 0.5))
        self.shrink = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)

    def forward(self, x):
        branch = self.down(F.gelu(self.up(self.norm(x))))
        return self.shrink(x + self.scale.unsqueeze(-1).unsqueeze(-1) * branch)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 4, stride=4)
        self.stages = nn.ModuleList(Stage(width) for width in (8, 16, 32, 64))
        self.head = nn.Linear(128, 4)

    def forward(self, x):
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
        return self.head(x.mean((2, 3)))


def build_model():
    return Net()


def example_inputs():
    return (torch.randn(4, 3, 64, 64),)
"""
)


def test_gradients_that_are_viewed_in_other_sizes_are_no_class(tmp_path: Path) -> None:
    """PoolFormer's scales: the first stage's size stood in the class of both."""
    assert_bitwise(emit(tmp_path, STAGES, at_share("none", 1.0)))
