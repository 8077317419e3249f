"""transformers puts hooks on its own modules when hidden states are first asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from pairs import Pair, make_pair_of
from steps import assert_right
from torch import nn

from remat_gen.capture.load.load import load
from remat_gen.capture.refuse.library_hooks import INSTALLED, LIBRARY, removed_afterwards
from remat_gen.capture.trace.trace import trace

SOURCE = """\
import torch
from transformers import GPT2Config, GPT2LMHeadModel


def build_model():
    config = GPT2Config(vocab_size=32, n_positions=16, n_embd=16, n_layer=2, n_head=2)
    return GPT2LMHeadModel(config)


def example_inputs():
    ids = torch.arange(16).reshape(2, 8)
    return {"input_ids": ids, "labels": ids, "use_cache": False, "output_hidden_states": True}
"""


def has_library_hooks(model: nn.Module) -> bool:
    """Tell whether a module has such a hook."""
    hooks = [hook for module in model.modules() for hook in module._forward_hooks.values()]
    return any(hook.__module__ == LIBRARY for hook in hooks)


@pytest.fixture(scope="module")
def pair() -> Pair:
    pytest.importorskip("transformers")
    return make_pair_of(SOURCE, "1GB", "per-layer")


def test_hidden_states_are_eagers(pair: Pair) -> None:
    assert_right(pair)


def test_a_model_may_be_built_with_them() -> None:
    """Segmentation models ask their backbone for its stages as they are built."""
    pytest.importorskip("transformers")
    built = SOURCE.replace(
        "    return GPT2LMHeadModel(config)",
        "    model = GPT2LMHeadModel(config)\n    install_all_output_capturing_hooks(model)\n"
        "    return model",
    )
    where = "from transformers.utils.output_capturing import install_all_output_capturing_hooks\n"
    built = built.replace("import torch\n", f"import torch\n{where}", 1)
    pair = make_pair_of(built, "1GB", "per-layer")
    assert has_library_hooks(pair.planned.build_model())
    assert_right(pair)


def test_the_librarys_own_mark_is_not_assumed(pair: Pair) -> None:
    """A planned forward never sets it: it would refuse its own first step."""
    assert INSTALLED not in pair.text


def test_training_goes_on_after_eval_has_installed_the_hooks(pair: Pair) -> None:
    model = pair.planned.build_model()
    inputs = pair.planned.example_inputs()
    with torch.no_grad():
        model.eval()(**inputs)
    assert has_library_hooks(model)
    model.train()(**inputs).loss.backward()
    assert model.lm_head.weight.grad is not None


def test_a_hook_of_the_users_is_still_refused(pair: Pair) -> None:
    model = pair.planned.build_model().train()
    model.transformer.h[0].register_forward_hook(lambda module, args, output: None)
    with pytest.raises(
        ValueError,
        match=r"transformer\.h\.0 is GPT2Block with hook <lambda>, planned for GPT2Block",
    ):
        model(**pair.planned.example_inputs())


def test_the_model_is_left_without_them(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    path = tmp_path / "net.py"
    path.write_text(SOURCE, encoding="utf-8")
    loaded = load(path, None, None, "cpu")
    traced = trace(loaded.model, loaded.args, loaded.kwargs, path)
    assert len(traced.graph.outputs) > 3
    assert not any(INSTALLED in vars(module) for module in loaded.model.modules())
    assert not has_library_hooks(loaded.model)


def test_only_the_librarys_hooks_are_taken_off() -> None:
    model = nn.Sequential(nn.Linear(2, 2))

    def theirs(*_: object) -> None:
        return None

    theirs.__module__ = LIBRARY
    with removed_afterwards(model):
        model[0].register_forward_hook(lambda *_: None)
        model[0].register_forward_hook(theirs)
    assert len(model[0]._forward_hooks) == 1
    assert not has_library_hooks(model)
