"""The command `calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from remat_gen.ask.generate_options import GenerateOptions
from remat_gen.cli import option_texts as o
from remat_gen.ir.byte_text import size
from remat_gen.ir.errors import UsageError
from remat_gen.plan.output import write_all
from remat_gen.terminal.interrupt import reported
from remat_gen.terminal.printing import say, write_stdout

if TYPE_CHECKING:
    from remat_gen.capture.profile.targets import Hardware

RealDeviceOption = Annotated[
    str, typer.Option(metavar="NAME", help="auto|cpu|cuda [auto]", show_default=False)
]
TargetFileOption = Annotated[
    str, typer.Option("-o", "--output", metavar="FILE", help="A .toml file; - is stdout.")
]


@o.with_generate_options("force")
def calibrate(
    output: TargetFileOption,
    device: RealDeviceOption = "auto",
    *,
    options: GenerateOptions,
    quiet: o.QuietOption = False,
    debug: o.DebugOption = False,
) -> None:
    """Measure what this device sustains, to plan for it elsewhere.

    \b
    remat-gen calibrate -o my_gpu.toml                  (where the device is)
    remat-gen model.py --target my_gpu.toml --budget 6GB            (anywhere)

    Measured are the matrix product in each dtype, the memory's bandwidth, copies to the host,
    random numbers and the launch of an operation, in a few seconds.
    """
    path = _checked(output, force=options.force)
    with reported(quiet=quiet) as progress:
        progress.stage("load")
        from remat_gen.capture.load.load import resolve_device
        from remat_gen.capture.profile.calibrate import calibrate as measure
        from remat_gen.capture.profile.calibrate import table_name, target_text

        progress.stage("measure")
        found = measure(resolve_device(device))
    text = target_text(table_name(path) if path else "my_device", found)
    if path is None:
        write_stdout(text)
    else:
        write_all({path: text})
    if not quiet:
        say(_lines(found, path))


def _checked(output: str, *, force: bool) -> Path | None:
    """Return the file that is written, None for stdout.

    Raises:
        UsageError: it cannot be written, or stands there already.
    """
    if output == "-":
        return None
    path = Path(output)
    if path.suffix != ".toml":
        raise UsageError(f"{path}: a target is a TOML file; name it as in my_gpu.toml")
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.parent}; create it first")
    if path.exists() and not force:
        raise UsageError(f"{path}: exists; --force overwrites it")
    return path


def _lines(found: Hardware, path: Path | None) -> list[str]:
    rates = ", ".join(f"{d} {rate / 1e12:.3g}" for d, rate in sorted(found.flops_per_s.items()))
    lines = [
        f"device      {found.name}, {size(found.memory_bytes)}",
        f"products    {rates} TFLOP/s",
        f"memory      {found.bytes_per_s / 1e9:.3g} GB/s, read and written",
        f"to the host {found.host_bytes_per_s / 1e9:.3g} GB/s, and back",
        f"random      {found.drawn_per_s / 1e9:.3g} G numbers/s",
        f"launch      {found.launch_us:.3g} µs",
    ]
    return [*lines, f"written     {path}"] if path else lines
