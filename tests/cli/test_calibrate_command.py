"""`calibrate` writes what `--target` reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cli_runs import Remat

from remat_gen.capture.device.absent import HOPPER, UNKNOWN, AbsentDevice
from remat_gen.capture.profile.calibrate import target_text
from remat_gen.capture.profile.targets import find_target, read_targets


def test_this_cpu_is_measured_into_a_target(folder: Path, remat: Remat) -> None:
    ended = remat("calibrate", "--device", "cpu", "-o", "my-cpu.toml")
    assert ended.code == 0, ended.err
    assert "written     my-cpu.toml" in ended.err

    found = find_target("my-cpu.toml")

    assert list(read_targets(Path("my-cpu.toml"))) == ["my_cpu"]
    assert found.device == "cpu" and found.alignment_bytes == 1
    # No CPU does fewer operations than it moves bytes, or 100 000 for each; a launch is what
    # Python's call of an operator takes, some microseconds.
    assert 0.1 < found.flops_per_s["float32"] / found.bytes_per_s < 1e5
    assert 0.05 < found.launch_us < 1000
    assert found.flops_per_s["float64"] < 4 * found.flops_per_s["float32"]
    assert found.memory_bytes > 2**30
    text = Path("my-cpu.toml").read_text()
    assert target_text("my_cpu", found) == text  # nothing is lost, and nothing else is said
    planned = remat("small.py", "--target", "my-cpu.toml", "--budget", "75%")
    assert planned.code == 0, planned.err


def test_a_gpus_capability_is_written_and_read(tmp_path: Path) -> None:
    known = replace(find_target("h100"), drawn_per_s=1e12)  # which calibrate always measures
    path = tmp_path / "mine.toml"
    path.write_text(target_text("mine", known), encoding="utf-8")
    assert find_target(str(path)).absent == known.absent == AbsentDevice("cuda", HOPPER)
    unknown = target_text("mine", replace(known, compute_capability=UNKNOWN))
    assert "compute_capability" not in unknown


def test_refusals(folder: Path, remat: Remat) -> None:
    Path("mine.toml").write_text("kept")
    for name, said in (
        ("mine.toml", "mine.toml: exists; --force overwrites it"),
        ("mine.txt", "a target is a TOML file; name it as in my_gpu.toml"),
        ("away/mine.toml", "there is no folder away; create it first"),
    ):
        ended = remat("calibrate", "-o", name)
        assert ended.code == 2
        assert said in ended.err
    assert Path("mine.toml").read_text() == "kept"
