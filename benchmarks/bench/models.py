"""The models that can be measured: the examples, published cases, and any file of a user's."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from planned import EXAMPLES, ROOT

_BENCHMARKS = ROOT / "benchmarks"


@dataclass(frozen=True, slots=True)
class Case:
    """A model file, and the lines of it that are otherwise here."""

    name: str
    file: Path
    changes: tuple[tuple[str, str], ...] = ()

    def write(self, folder: Path) -> Path:
        """Write the model into a folder; a file that says the same already is left alone.

        Raises:
            ValueError: a line that is to be changed is not there.
        """
        text = self.file.read_text(encoding="utf-8")
        for old, new in self.changes:
            if old not in text:
                raise ValueError(f"{self.file.name} has no line {old!r}")
            text = text.replace(old, new)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.py"
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            shutil.rmtree(folder)
            folder.mkdir()
            path.write_text(text, encoding="utf-8")
        return path


_GPT_4L = _BENCHMARKS / "gpt_4l_model.py"
_SIZES = "LAYERS, WIDTH, HEADS, CONTEXT, BATCH, VOCABULARY = 4, 256, 4, 256, 8, 1024"
CASES: Mapping[str, Case] = {
    **{name: Case(name, ROOT / "examples" / f"{name}.py") for name in EXAMPLES},
    "gpt_4l": Case("gpt_4l", _GPT_4L),
    "gpt_6l": Case(
        "gpt_6l", _GPT_4L, ((_SIZES, _SIZES.replace("4, 256, 4, 256, 8", "6, 256, 4, 256, 4")),)
    ),
    "resnet18": Case("resnet18", _BENCHMARKS / "resnet18_model.py"),
}


def case_of(word: str) -> Case:
    """Return the case that is called so, or the file.

    Raises:
        ValueError: there is neither.
    """
    if word in CASES:
        return CASES[word]
    path = Path(word)
    if not path.is_file():
        raise ValueError(f"{word}: neither a file nor one of {', '.join(CASES)}")
    return Case(path.stem, path)
