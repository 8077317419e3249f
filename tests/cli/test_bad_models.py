"""Every model file that cannot be used ends in one readable line and exit code 2."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from cli_runs import Remat
from rich.console import Console

from remat_gen.terminal.failure import Failure

_MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
    def forward(self, x):
        return self.fc(x).sum()

def build_model():
    return Net()

def example_inputs():
    return (torch.randn(2, 4),)
"""
_INPUTS = "return (torch.randn(2, 4),)"
_BUILD = "return Net()"
_ENDS = """class Ends(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, d):
        raise SystemExit(0)

"""
_KERNEL = """@torch.library.custom_op("bad_models::ends", mutates_args=())
def ends(x: torch.Tensor) -> torch.Tensor:
    raise SystemExit(0)
ends.register_fake(torch.empty_like)
ends.register_autograd(lambda ctx, d: d)

"""
_NO_BUILDER = _MODEL.replace("def build_model():\n    return Net()\n", "")

BAD = {
    "syntax error": (_MODEL + "\ndef broken(:\n", [r"model.py:18", "syntax error"]),
    "null byte": ("x = '\0'\n", ["model.py", "null bytes"]),
    "error on import": (_MODEL + "\nx = 1 / 0\n", ["model.py:18", "ZeroDivisionError"]),
    "missing module": ("import no_such_module\n", ["model.py:1", "no_such_module"]),
    "calls exit": (_MODEL + "\nraise SystemExit(0)\n", ["model.py:18", "exit()", "__main__"]),
    "calls exit in forward": (
        _MODEL.replace("return self.fc(x).sum()", "raise SystemExit(0)"),
        ["model.py:10", "exit()"],
    ),
    "calls exit in backward": (
        _MODEL.replace("self.fc(x)", "Ends.apply(self.fc(x))").replace(
            "class Net", _ENDS + "class Net"
        ),
        ["model.py:11", "exit()"],
    ),
    "calls exit in an operator's kernel": (
        _MODEL.replace("self.fc(x)", "ends(self.fc(x))").replace(
            "class Net", _KERNEL + "class Net"
        ),
        ["exit()", "nothing was written"],
    ),
    "raises what is no Exception": (
        _MODEL.replace("return self.fc(x).sum()", "raise BaseException('so far')"),
        ["model.py:10", "BaseException: so far"],
    ),
    "too deep for the compiler": (
        _MODEL + f"\nx = {'-' * 20000}1\n",
        ["model.py: ", "too deep for Python's compiler"],
    ),
    "no model": ("import torch\n", ["defines no model", "build_model", "--model"]),
    "needs arguments": (
        _NO_BUILDER.replace("__init__(self)", "__init__(self, width)"),
        ["no model builds without arguments", "Net(width)"],
    ),
    "several models": (
        _NO_BUILDER + "\nclass Other(Net):\n    pass\n",
        ["several classes", "Net, Other", "--model"],
    ),
    "builder raises": (
        _MODEL.replace(_BUILD, "raise ValueError('no weights')"),
        ["model.py:13", "build_model() failed", "no weights"],
    ),
    "builder returns None": (_MODEL.replace(_BUILD, "pass"), ["returned None", "nn.Module"]),
    "builder returns the class": (_MODEL.replace(_BUILD, "return Net"), ["the class Net"]),
    "builder wants arguments": (
        _MODEL.replace("build_model()", "build_model(depth)"),
        ["build_model needs arguments (depth)"],
    ),
    "no inputs": (
        _MODEL.replace("def example_inputs", "def other_inputs"),
        ["has no example_inputs", "--inputs"],
    ),
    "inputs raise": (_MODEL.replace(_INPUTS, "return 1 / 0"), ["model.py:16", "example_inputs()"]),
    "inputs are no function": (
        _MODEL.replace("def example_inputs():\n    " + _INPUTS, "example_inputs = 3"),
        ["example_inputs is an int", "function"],
    ),
    "inputs are a tensor": (
        _MODEL.replace(_INPUTS, "return torch.randn(2, 4)"),
        ["returned a Tensor", "return (x,)"],
    ),
    "inputs are None": (_MODEL.replace(_INPUTS, "pass"), ["returned None", "a tuple"]),
    "inputs hold an object": (
        _MODEL.replace(_INPUTS, "return (torch.randn(2, 4), [object()])"),
        ["an object in inputs[1][0]"],
    ),
    "inputs with a key that is no name": (
        _MODEL.replace(_INPUTS, "return {3: torch.randn(2, 4)}"),
        ["returned a dict"],
    ),
    "inputs do not fit": (
        _MODEL.replace(_INPUTS, "return {'y': torch.randn(2, 4)}"),
        ["does not fit Net.forward", "'x'"],
    ),
    "nothing to train": (
        _MODEL.replace(_BUILD, "return Net().requires_grad_(False)"),
        ["no parameter of Net requires a gradient"],
    ),
    "forward raises": (
        _MODEL.replace("return self.fc(x).sum()", "raise ValueError('no way through')"),
        ["model.py:10"],
    ),
    "a branch on a random number": (
        _MODEL.replace(
            "return self.fc(x).sum()",
            "y = self.fc(x).sum()\n        return y if torch.rand(()) > 0 else -y",
        ),
        ["model.py:11", "where a rate decides"],
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_model_is_refused(name: str, folder: Path, remat: Remat) -> None:
    text, phrases = BAD[name]
    (folder / "model.py").write_text(text)
    ended = remat("model.py", "--budget", "50%")
    assert ended.code == 2
    for phrase in phrases:
        assert phrase in ended.err
    error = ended.err[ended.err.index("remat-gen: error: ") :]
    assert len(error.splitlines()) <= 3
    assert "Traceback" not in ended.err
    assert ended.out == ""
    left = {path.name for path in folder.iterdir() if path.suffix != ".pyc"}
    assert left == {"model.py", "small.py"}


def test_an_expression_that_is_too_deep_to_be_copied(folder: Path, remat: Remat) -> None:
    (folder / "model.py").write_text(_MODEL + f"\nx = {'-' * 1000}1\n")
    ended = remat("model.py", "--budget", "100%")
    assert ended.code == 2
    assert "error: the model's file has an expression that is too deep" in ended.err


@pytest.mark.parametrize("base", ["Exception", "BaseException", "SystemExit"])
@pytest.mark.parametrize("place", ["return self.fc(x).sum()", "super().__init__()", _INPUTS])
def test_an_error_that_has_no_words(place: str, base: str, folder: Path, remat: Remat) -> None:
    error = f"\nclass Mute({base}):\n    def __str__(self):\n        raise ValueError\n"
    (folder / "model.py").write_text(_MODEL.replace(place, "raise Mute") + error)
    ended = remat("model.py", "--budget", "50%")
    assert ended.code == 2
    assert "remat-gen: error: model.py:" in ended.err
    assert "defect" not in ended.err and "Traceback" not in ended.err


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize(
    "closed",
    ["sys.{}.close()", "sys.{}.detach().close()", "io.TextIOWrapper(sys.{}.buffer).close()"],
)
def test_a_file_may_close_its_streams(closed: str, stream: str, folder: Path, remat: Remat) -> None:
    text = f"import io, sys\n{closed.format(stream)}\nprint('still there')\n{_MODEL}"
    (folder / "model.py").write_text(text)
    ended = remat("model.py", "--budget", "100%")
    assert ended.code == 0
    assert "still there" in ended.err and "model_remat.py" in ended.err
    assert ended.out == ""


def test_the_model_these_cases_vary_is_good(folder: Path, remat: Remat) -> None:
    (folder / "model.py").write_text(_MODEL)
    assert remat("model.py", "--budget", "100%").code == 0


def test_one_class_that_builds_needs_no_builder(folder: Path, remat: Remat) -> None:
    (folder / "model.py").write_text(_NO_BUILDER)
    assert remat("model.py", "--budget", "100%").code == 0


@pytest.mark.parametrize(
    ("arguments", "phrases"),
    [
        (["nowhere.py"], ["nowhere.py: no such file"]),
        (["."], ["is a folder"]),
        (["notes.txt"], ["is not a Python file"]),
        (["latin.py"], ["is not Python text"]),
        (["small.py", "--model", "Missing"], ["--model Missing is not in the file", "Small"]),
        (["small.py", "--model", "torch"], ["--model torch is a module"]),
        (["small.py", "--model", "Layer"], ["Layer needs arguments (width)"]),
        (["small.py", "--inputs", "missing"], ["has no missing"]),
        (["small.py", "--device", "toaster"], ["--device toaster"]),
        (["small.py", "--device", "cuda:99"], ["--device cuda:99", "PyTorch sees"]),
        pytest.param(
            ["small.py", "--device", "mps"],
            ["--device mps", "not supported"],
            marks=pytest.mark.limit(
                "devices other than the CPU and CUDA", "refused on the command line"
            ),
        ),
        (["small.py", "--strategy", "magic"], ["magic", "rockmate"]),
        (["small.py", "--optimizer", "adam"], ["--device-memory"]),
        (["small.py", "--nonsense"], ["--nonsense", "--help"]),
        ([], ["MODEL.py"]),
        (["verify", "nowhere.py"], ["nowhere.py: no such file"]),
        (["verify", "small.py"], ["was not written by remat-gen"]),
    ],
)
def test_bad_arguments_are_refused(
    arguments: list[str], phrases: list[str], folder: Path, remat: Remat
) -> None:
    (folder / "notes.txt").write_text("not Python")
    (folder / "latin.py").write_bytes(b"x = '\xe9'\n")
    if arguments[:1] != ["verify"]:
        arguments = [*arguments, "--budget", "50%"]
    ended = remat(*arguments)
    assert ended.code == 2
    assert all(phrase in ended.err for phrase in phrases), ended.err
    assert "Traceback" not in ended.err
    assert ended.out == ""


def test_debug_shows_the_traceback(folder: Path, remat: Remat) -> None:
    ended = remat("nowhere.py", "--budget", "50%", "--debug")
    assert ended.code == 2
    assert "Traceback" in ended.err


def test_a_generated_module_is_no_model(existing: Path, remat: Remat) -> None:
    ended = remat(existing.name, "--budget", "50%")
    assert ended.code == 2
    assert "was generated by remat-gen" in ended.err


def test_a_pipe_that_is_closed_is_no_exit_of_the_models(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`explain … | head`: rich ends the program, which was called the model's doing."""
    monkeypatch.setattr("os.dup2", lambda *_: None)
    failure = Failure(debug=False, as_json=False)
    with failure:
        Console(file=io.StringIO()).on_broken_pipe()
    assert failure.code == 1
    assert capfd.readouterr().err == ""
