"""Samples from a map-style data set: every item once and in order, or a typed error that names the item."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from tests.support.refusals import refusal
from veilsum.roles.learning.errors import TaskError
from veilsum.roles.learning.task import Samples


@dataclass
class Given(Dataset[Any]):
    """The items it was made of; it counts how often each was asked for."""

    items: list[Any]
    asked: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        self.asked.append(index)
        return self.items[index]


class Endless(IterableDataset[Any]):
    """A data set without a length."""

    def __iter__(self) -> Iterator[Any]:
        yield torch.zeros(1), 0


def test_tensors_and_labels_become_samples_and_every_item_is_asked_for_once() -> None:
    dataset = Given([(torch.full((3, 2, 2), float(index)), index % 2) for index in range(5)])
    samples = Samples.from_dataset(dataset)
    assert dataset.asked == [0, 1, 2, 3, 4]
    assert repr(samples) == "Samples(inputs=float32 (5, 3, 2, 2), targets=int64 (5,))"
    assert samples.inputs[:, 0, 0, 0].tolist() == [0, 1, 2, 3, 4]


def test_data_sets_of_torch_and_lists_of_pairs_serve_alike() -> None:
    tensors = TensorDataset(torch.arange(6.0).reshape(3, 2), torch.tensor([0.5, 1.5, 2.5]))
    samples = Samples.from_dataset(Subset(tensors, [2, 0]))
    assert samples.inputs.tolist() == [[4, 5], [0, 1]]
    assert samples.targets.tolist() == [2.5, 0.5]
    assert Samples.from_dataset([(np.zeros(2), 1), ([1, 2], 0)]).labels is not None


@pytest.mark.parametrize(("mode", "channels"), [("L", 1), ("RGB", 3), ("RGBA", 4)])
def test_images_become_pixels_with_the_channels_first(mode: str, channels: int) -> None:
    image = Image.new(mode, (5, 4), 7 if mode == "L" else (7,) * channels)
    samples = Samples.from_dataset([(image, 0), (image, 1)])
    assert samples.inputs.dtype == np.uint8
    assert samples.inputs.shape == (2, channels, 4, 5)
    assert (samples.inputs == 7).all()


@pytest.mark.parametrize(
    ("items", "says"),
    [
        ([], "Given empty"),
        ([(torch.zeros(2), 0), (torch.zeros(3), 0)], "input 1 3 2"),
        ([(torch.zeros(2), 0), (torch.zeros(2), [1, 2])], "target 1"),
        ([(torch.zeros(2), 0), (torch.zeros(2), 0.5)], "target 1 float32 int64"),
        ([(torch.zeros(2), 0), (torch.zeros(2, dtype=torch.uint8), 0)], "input 1 uint8 float32"),
        ([{"image": 1, "label": 0}], "0 dict pairs"),
        ([(1, 2, 3)], "0 3"),
        ([(torch.tensor([0.1], dtype=torch.float64), 0)], "input 0 float64 .to(torch.float32)"),
        ([(torch.zeros(2), "cat")], "target 0 numbers"),
        ([(Image.new("P", (2, 2)), 0)], "input 0 P image.convert('RGB')"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_items_that_make_no_samples_are_refused_by_number(items: list[Any], says: str) -> None:
    with refusal(TaskError, *says.split()):
        Samples.from_dataset(Given(items))


@pytest.mark.parametrize("dataset", [Endless(), iter([]), 3])
def test_what_has_no_items_by_number_is_refused_with_the_remedy(dataset: Any) -> None:
    with refusal(TaskError, "list(dataset)"):
        Samples.from_dataset(dataset)


def test_reading_files_and_lists_loads_neither_torch_nor_an_image_library() -> None:
    code = (
        "import sys, tempfile, pathlib\n"
        "from veilsum import Samples\n"
        "Samples.from_dataset([([1.0], 0)])\n"
        "file = pathlib.Path(tempfile.mkdtemp()) / 'a.csv'\n"
        "file.write_text('x,y\\n1,2\\n')\n"
        "Samples.from_csv(file, target='y')\n"
        "print(*{'torch', 'PIL'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
