"""Files that hold no graph are refused, with what is wrong and where."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from cli_runs import Remat
from graph_files import node
from hypothesis import given, settings
from hypothesis import strategies as st

from remat_gen.bare.graph_file import parse_graph
from remat_gen.ir.errors import GraphError
from remat_gen.solver.law.bare_graph import BareGraph

BAD_FILES = {
    "empty": ("", "is no JSON"),
    "malformed": ('{"nodes": [', "is no JSON"),
    "deep": ("[" * 100_000, "is no JSON"),
    "another": ("[1, 2]", 'expected an object with a list of "nodes"'),
    "no nodes": ("{}", 'expected an object with a list of "nodes"'),
    "nodes are no list": ('{"nodes": {}}', '"nodes": expected a list'),
    "empty graph": ('{"nodes": []}', "at least one node"),
    "a node is no object": ('{"nodes": [3]}', "node 0: expected an object"),
    "an unknown key": ('{"nodes": [], "output": []}', "has an unknown 'output'"),
    "a key twice": ('{"nodes": [3], "nodes": []}', "has the key 'nodes' twice"),
    "nan": ('{"nodes": [{"name": "a", "time": NaN}]}', "NaN is no number"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_what_is_no_graph_is_refused(name: str, tmp_path: Path, remat: Remat) -> None:
    text, phrase = BAD_FILES[name]
    _refused(tmp_path, remat, text, phrase)


def _refused(tmp_path: Path, remat: Remat, text: str, *phrases: str) -> None:
    path = tmp_path / "graph.json"
    path.write_text(text)
    ended = remat("solve", path, "--budget", "50%")
    assert ended.code == 2
    (line,) = [line for line in ended.err.splitlines() if "error" in line]
    assert line.startswith("remat-gen: error: ") and "graph.json" in line
    assert all(phrase in line for phrase in phrases), line
    assert "defect" not in line and "Traceback" not in ended.err


BAD_NODES = {
    "negative bytes": ({"bytes": -5}, "node 1 ('b').bytes: must be at least 0, is -5"),
    "negative time": ({"time": -0.5}, "node 1 ('b').time: must be at least 0, is -0.5"),
    "infinite time": ({"time": 10**400}, "node 1 ('b').time: expected a number"),
    "bytes are no whole number": ({"bytes": 1.5}, "node 1 ('b').bytes: expected a whole number"),
    "bytes are a truth": ({"bytes": True}, "expected a whole number, found true"),
    "too many bytes": ({"bytes": 2**62}, "bytes together"),
    "time is a text": ({"time": "fast"}, "node 1 ('b').time: expected a number, found \"fast\""),
    "the flag is a number": ({"backward": 1}, "node 1 ('b').backward: expected true or false"),
    "the name is a number": ({"name": 3}, "node 1.name: expected a text, found 3"),
    "inputs are a text": ({"inputs": "a"}, "node 1 ('b').inputs: expected a list"),
    "an input is a number": ({"inputs": [0]}, "node 1 ('b').inputs[0]: expected a text"),
    "an unknown input": ({"inputs": ["z"]}, "node 1 ('b'): reads 'z', which is no node"),
    "itself": ({"inputs": ["b"]}, "node 1 ('b'): is in a cycle, which cannot run: b → b"),
    "an unknown key": ({"layers": "fc"}, "node 1 ('b') has an unknown 'layers'"),
    "a duplicate name": ({"name": "a"}, "node 1: 'a' is the name of node 0 already"),
    "not in order": ({"inputs": ["c"]}, "'c', which stands below it at node 2; sort the nodes"),
}


@pytest.mark.parametrize("name", BAD_NODES)
def test_bad_nodes_are_named(name: str, tmp_path: Path, remat: Remat) -> None:
    change, phrase = BAD_NODES[name]
    nodes = [node("a"), node("b", "a") | change, node("c", "a")]
    _refused(tmp_path, remat, json.dumps({"nodes": nodes}), phrase)


@pytest.mark.parametrize("key", ["name", "time", "bytes", "backward", "inputs"])
def test_missing_keys_are_named(key: str, tmp_path: Path, remat: Remat) -> None:
    nodes = [node("a"), node("b", "a")]
    del nodes[1][key]
    _refused(tmp_path, remat, json.dumps({"nodes": nodes}), "node 1", f"has no {key!r}")


def test_a_cycle_is_shown(tmp_path: Path, remat: Remat) -> None:
    nodes = [node("x"), node("a", "x", "c"), node("b", "a"), node("c", "b"), node("d", "c")]
    _refused(tmp_path, remat, json.dumps({"nodes": nodes}), "node 1 ('a')", "a → b → c → a")


def test_a_long_cycle_is_shown_in_part() -> None:
    nodes = [node(f"n{i}", f"n{(i or 4000) - 1}") for i in range(4000)]
    with pytest.raises(GraphError, match=r"n0 → n1 → n2 → … → n3999 → n0 \(4000 nodes\)$"):
        parse_graph(json.dumps({"nodes": nodes}))


@pytest.mark.alone
def test_a_long_graph_in_reverse_is_refused_at_once() -> None:
    """Quadratic work would take a minute."""
    nodes = [node(f"n{i}", *([f"n{i - 1}"] if i else [])) for i in reversed(range(20_000))]
    before = time.process_time()
    with pytest.raises(GraphError, match="'n19998', which stands below it at node 1; sort"):
        parse_graph(json.dumps({"nodes": nodes}))
    assert time.process_time() - before < 3


@pytest.mark.parametrize("outputs", ["b", [1], ["z"], None])
def test_bad_outputs_are_refused(outputs: object, tmp_path: Path, remat: Remat) -> None:
    nodes = [node("a"), node("b", "a")]
    _refused(tmp_path, remat, json.dumps({"nodes": nodes, "outputs": outputs}), "outputs")


def test_files_that_cannot_be_read(tmp_path: Path, remat: Remat) -> None:
    (tmp_path / "odd.json").write_bytes(b"\xff\xfe\x00")
    for path, phrase in ((tmp_path / "none.json", "no such file"), (tmp_path, "cannot be read")):
        ended = remat("solve", path, "--budget", "50%")
        assert ended.code == 2 and phrase in ended.err
    ended = remat("solve", tmp_path / "odd.json", "--budget", "50%")
    assert ended.code == 2 and "not UTF-8" in ended.err


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.sampled_from("abc"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=4,
)
_ANY_NODE = st.fixed_dictionaries(
    {
        "name": st.sampled_from("abcd"),
        "time": st.integers(0, 3) | _JSON,
        "bytes": st.integers(0, 3) | _JSON,
        "backward": st.booleans(),
        "inputs": st.lists(st.sampled_from("abcd"), max_size=2) | _JSON,
    }
)


@given(st.fixed_dictionaries({"nodes": st.lists(_ANY_NODE, max_size=4) | _JSON}) | _JSON)
@settings(max_examples=300, deadline=None)
def test_any_json_is_a_graph_or_refused(plain: object) -> None:
    try:
        graph = parse_graph(json.dumps(plain))
    except GraphError as error:
        assert str(error)
        return
    assert isinstance(graph, BareGraph) and graph.nodes
