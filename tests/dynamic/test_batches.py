"""Every batch up to the example's: bitwise as eager, within the budget; any other is refused."""

from __future__ import annotations

import pytest
from varying import assert_as_eager, varying
from varying_models import (
    GPT,
    KEEPS_QUOTIENTS,
    MODELS,
    NESTED,
    OPEN_ENDED,
    RESNET,
    SIZES,
    WINDOWS,
)

from remat_gen.capture.device.cpu import CPU as KIND

MODEL = pytest.mark.parametrize("source", MODELS.values(), ids=MODELS)


@MODEL
def test_the_example_steps_as_eager_does(source: str) -> None:
    planned = varying(source)
    assert planned.length.minimum == 1
    assert_as_eager(planned, planned.length.maximum)


@MODEL
@pytest.mark.parametrize("number", [4, 2, 1])
def test_a_smaller_batch_steps_as_eager_does(source: str, number: int) -> None:
    assert_as_eager(varying(source), number)


@MODEL
def test_no_batch_takes_more_than_was_planned(source: str) -> None:
    planned = varying(source)
    numbers = (planned.length.maximum, planned.length.maximum - 1, 2, 1)
    measured = [planned.measured_bytes(n) for n in numbers]
    spare = planned.peak_bytes - measured[0]
    assert 0 <= spare <= KIND.rng_state_bytes  # counted at first runs, too, which do not hold it
    assert max(measured) == measured[0]  # of fewer samples, two can need less workspace than one


@pytest.mark.skipif(not KEEPS_QUOTIENTS, reason="torch 2.11 pins lengths there")
def test_a_quotient_that_is_whole_is_written_as_one() -> None:
    text = varying(WINDOWS).text.partition("class PlannedBlock")[2].partition("\nCOMMAND = ")[0]
    assert "int(" not in text
    assert "float(" not in text
    assert "math.ceil(batch / 2)" in text
    assert "math.floor(batch / 3)" in text


def test_something_is_run_again_with_sizes_in_it() -> None:
    planned = varying(GPT)
    assert planned.reruns
    again = [line for line in planned.text.splitlines() if "# re-run" in line]
    assert any("batch" in line for line in again)


@MODEL
@pytest.mark.parametrize("more", [1, 100])
@pytest.mark.limit(
    "a larger batch than the example's",
    "an error, and the command that plans again",
)
def test_a_larger_batch_is_refused(source: str, more: int) -> None:
    planned = varying(source)
    path, _ = planned.length.dims[0]
    largest = planned.length.maximum
    came, wanted = rf"\[{largest + more}\b", rf"\[batch <= {largest}\b"
    with pytest.raises(
        ValueError, match=f"{path.split('[')[0]} is .*{came}.*planned for .*{wanted}"
    ):
        planned.steps(largest + more)


def test_the_refusal_says_what_to_do() -> None:
    planned = varying(RESNET)
    with pytest.raises(ValueError, match=r"remat-gen net\.py --budget 60% -o net_remat\.py"):
        planned.steps(21)


@pytest.mark.limit(
    "an empty batch",
    "an error",
)
def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(ValueError, match=r"x is float32\[0, 3, 8, 8\].*batch <= 20, 3, 8, 8"):
        varying(RESNET).steps(0)


def test_inputs_of_different_batches_are_refused() -> None:
    planned = varying(GPT)
    (ids, targets), _ = planned.arguments(4)
    with pytest.raises(
        ValueError, match=r"targets is int64\[3, 12\] on cpu, planned for int64\[4, 12\]"
    ):
        planned.planned.model(ids, targets[:3])


@pytest.mark.parametrize("odd", [None, 3.0, [], "x"])
def test_what_is_no_tensor_is_refused(odd: object) -> None:
    with pytest.raises(ValueError, match="planned for"):
        varying(RESNET).planned.model(odd)


def test_a_dict_without_the_key_is_refused() -> None:
    with pytest.raises(ValueError, match=r"batch is \{\}, planned for"):
        varying(NESTED).planned.model({})


@pytest.mark.limit(
    "other lengths than the batch and those named by `--dynamic`",
    "an error, and the command that plans again",
)
def test_another_shape_is_refused_still() -> None:
    (x,), _ = varying(RESNET).arguments(4)
    with pytest.raises(ValueError, match=r"x is float32\[4, 3, 8, 7\]"):
        varying(RESNET).planned.model(x[..., :7].contiguous())


def test_blocks_read_the_length_from_what_is_kept_for_the_step() -> None:
    text = varying(GPT).text
    assert "batch = ids.shape[0]\n" in text
    assert "PlannedStep(self, known, batch=batch)" in text
    assert "self.batch\n" in text
    assert "(6, " not in text.partition("class PlannedBlock")[2]


def test_the_length_that_a_model_returns_is_the_steps() -> None:
    assert "2 * batch" in varying(SIZES).text.partition("class PlannedBlock")[0]


def test_incoming_gradients_have_the_shape_of_the_step() -> None:
    assert (
        "incoming_gradient(d_two, ([batch, 2], [2, 1], torch.float32))" in varying(OPEN_ENDED).text
    )
