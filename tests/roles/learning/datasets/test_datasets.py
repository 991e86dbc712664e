"""Every loader on tiny files in the official formats, made here; and on the real files where they are."""

from __future__ import annotations

import csv
import gzip
import io
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support.refusals import refusal
from veilsum.protocol.errors import LocalProtocolError
from veilsum.roles.learning.datasets.bank import CATEGORIES, MEAN_AND_DEVIATION, read_bank
from veilsum.roles.learning.datasets.files import read_npz
from veilsum.roles.learning.datasets.registry import load_task
from veilsum.roles.learning.datasets.supervised import SupervisedTask
from veilsum.roles.learning.task import TaskOptions

RNG = np.random.default_rng(0)


def load(name: str, folder: Path, **options: str) -> SupervisedTask:
    task = load_task(name, TaskOptions(data=folder, **options))  # type: ignore[arg-type] # model and loss by name
    assert isinstance(task, SupervisedTask)
    return task


def pixels(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape, dtype=np.uint8)


# mnist


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_mnist(folder: Path, separator: str = "-", packed: bool = False) -> dict[str, np.ndarray]:
    arrays = {"train": pixels(12, 28, 28), "t10k": pixels(4, 28, 28)}
    for part, images in arrays.items():
        labels = np.arange(len(images), dtype=np.uint8) % 10
        for stem, array in ((f"{part}-images", images), (f"{part}-labels", labels)):
            path = folder / f"{stem}{separator}idx{array.ndim}-ubyte{'.gz' if packed else ''}"
            path.write_bytes(gzip.compress(idx(array)) if packed else idx(array))
    return arrays


@pytest.mark.parametrize(("separator", "packed"), [("-", False), ("-", True), (".", False)])
def test_mnist_reads_the_official_idx_files(tmp_path: Path, separator: str, packed: bool) -> None:
    arrays = write_mnist(tmp_path, separator, packed)
    task = load("mnist", tmp_path)
    assert np.array_equal(task.train.inputs[:, 0], arrays["train"])
    assert np.array_equal(task.test.inputs[:, 0], arrays["t10k"])
    assert task.train.targets.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]


def test_mnist_reads_the_npz_file(tmp_path: Path) -> None:
    images, labels = pixels(6, 28, 28), np.arange(6, dtype=np.uint8)
    np.savez(tmp_path / "mnist.npz", x_train=images, y_train=labels, x_test=images[:2], y_test=labels[:2])
    task = load("mnist", tmp_path)
    assert np.array_equal(task.train.inputs[:, 0], images)
    assert len(task.test) == 2


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-1], "hold 9408 bytes"),
        (lambda data: data + b"x", "hold 9408 bytes"),
        (lambda data: b"\0\0\x09\x03" + data[4:], "idx file"),
        (lambda data: data[:7], "idx file"),
        (lambda _: idx(pixels(12, 20, 28)), "images must be"),
        (lambda _: idx(pixels(11, 28, 28)), "11 integer labels"),
    ],
)
def test_a_damaged_idx_file_is_named(tmp_path: Path, damage, message: str) -> None:  # type: ignore[no-untyped-def] # a lambda
    write_mnist(tmp_path)
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(LocalProtocolError, match=message) as caught:
        load("mnist", tmp_path)
    assert path.name in str(caught.value)


def test_a_truncated_gzip_file_is_named(tmp_path: Path) -> None:
    write_mnist(tmp_path, packed=True)
    path = tmp_path / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with refusal(LocalProtocolError, "t10k-images-idx3-ubyte.gz"):
        load("mnist", tmp_path)


def test_one_missing_idx_file_is_named_with_the_accepted_formats(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with refusal(LocalProtocolError, "mnist.npz", "t10k-labels-idx1-ubyte"):
        load("mnist", tmp_path)


# cifar10


def write_cifar(folder: Path) -> np.ndarray:
    records = pixels(60, 3073)
    records[:, 0] = np.arange(60) % 10
    for number in range(5):
        (folder / f"data_batch_{number + 1}.bin").write_bytes(
            records[number * 10 : number * 10 + 10].tobytes()
        )
    (folder / "test_batch.bin").write_bytes(records[50:].tobytes())
    return records


@pytest.mark.parametrize("subfolder", ["", "cifar-10-batches-bin"])
def test_cifar10_reads_the_official_binary_version(tmp_path: Path, subfolder: str) -> None:
    (tmp_path / subfolder).mkdir(exist_ok=True)
    records = write_cifar(tmp_path / subfolder)
    task = load("cifar10", tmp_path)
    assert (len(task.train), len(task.test)) == (50, 10)
    assert np.array_equal(task.train.inputs[7].reshape(-1), records[7, 1:])
    assert task.train.targets.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9] * 5


def test_cifar10_reads_npz_files_with_channels_last(tmp_path: Path) -> None:
    images, labels = pixels(8, 32, 32, 3), np.arange(8, dtype=np.uint8)
    np.savez(tmp_path / "cifar10_train20k.npz", x=images, y=labels)
    np.savez(tmp_path / "cifar10_test5k.npz", x=images[:2], y=labels[:2])
    task = load("cifar10", tmp_path)
    assert task.train.input_shape == (3, 32, 32)
    assert np.array_equal(task.train.inputs[3, 2], images[3, :, :, 2])


def test_the_pickled_version_of_cifar10_is_refused_and_never_read(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[object, ...]]:
            return (Path.touch, (tmp_path / "was-run",))

    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for number in range(1, 6):
        (folder / f"data_batch_{number}").write_bytes(pickle.dumps(Evil()))
    with refusal(LocalProtocolError, "Python", "pickled", "binary"):
        load("cifar10", tmp_path)
    assert not (tmp_path / "was-run").exists()


def test_a_binary_file_of_another_record_size_or_label_is_refused(tmp_path: Path) -> None:
    write_cifar(tmp_path)
    path = tmp_path / "data_batch_3.bin"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with refusal(LocalProtocolError, "data_batch_3.bin", 3073):
        load("cifar10", tmp_path)
    path.write_bytes(b"\x0a" + whole[1:])
    with refusal(LocalProtocolError, "data_batch_3.bin", "labels", 9):
        load("cifar10", tmp_path)


# ham10000


def write_ham(folder: Path, **changes: np.ndarray) -> None:
    lesions = np.array([f"HAM_{number % 20:07d}" for number in range(50)])
    arrays = {"x": pixels(50, 32, 32, 3), "y": np.arange(50, dtype=np.uint8) % 7, "lesion_id": lesions}
    np.savez(folder / "ham10000_32x32.npz", **(arrays | changes))  # type: ignore[arg-type] # arrays by name


def test_no_lesion_of_ham10000_is_on_both_sides(tmp_path: Path) -> None:
    images = pixels(50, 32, 32, 3)
    images[:, 0, 0, 0] = np.arange(50) % 20
    write_ham(tmp_path, x=images)
    task = load("ham10000", tmp_path)
    train, test = (set(part.inputs[:, 0, 0, 0].tolist()) for part in (task.train, task.test))
    assert not train & test
    assert len(train) == 16
    assert len(test) == 4
    assert "balanced_accuracy" in task.metrics(np.zeros((2, 7)), np.array([0, 1]))


def test_ham10000_refuses_a_file_that_does_not_fit(tmp_path: Path) -> None:
    write_ham(tmp_path, lesion_id=np.array(["a"]))
    with refusal(LocalProtocolError, "lesion_id", 50):
        load("ham10000", tmp_path)
    write_ham(tmp_path, y=np.full(50, 7, np.uint8))
    with refusal(LocalProtocolError, "labels", 6):
        load("ham10000", tmp_path)


# npz in general


def test_npz_files_are_read_without_pickle_and_damage_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=np.array([object()], dtype=object))
    with refusal(LocalProtocolError, "a.npz", "Object"):
        read_npz(path, ["x"])
    np.savez(path, x=np.ones(2))
    with refusal(LocalProtocolError, "a.npz", "y", "x"):
        read_npz(path, ["x", "y"])
    for junk in (b"", b"junk", path.read_bytes()[:40]):
        path.write_bytes(junk)
        with refusal(LocalProtocolError, "a.npz", "readable"):
            read_npz(path, ["x"])


# bank


def bank_rows(count: int, **changes: str) -> list[dict[str, str]]:
    row = {name: str(mean) for name, (mean, _) in MEAN_AND_DEVIATION.items()}
    row |= {name: text.split()[0] for name, text in CATEGORIES.items()}
    return [row | {"y": "yes" if number % 3 == 0 else "no"} | changes for number in range(count)]


def write_bank(path: Path, rows: list[dict[str, str]], packed: bool = False) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), delimiter=";", quoting=csv.QUOTE_NONNUMERIC)
    writer.writeheader()
    writer.writerows(rows)
    data = text.getvalue().encode()
    path.write_bytes(gzip.compress(data) if packed else data)


@pytest.mark.parametrize(
    "name", ["bank-additional-full.csv", "bank-additional-full.csv.gz", "bank-additional/"]
)
def test_bank_reads_the_official_csv_file(tmp_path: Path, name: str) -> None:
    if name.endswith("/"):
        (tmp_path / name).mkdir()
        name += "bank-additional-full.csv"
    write_bank(tmp_path / name, bank_rows(10), packed=name.endswith(".gz"))
    task = load("bank", tmp_path)
    assert (len(task.train), len(task.test)) == (8, 2)
    categories = sum(len(text.split()) for text in CATEGORIES.values())
    assert task.train.input_shape == (len(MEAN_AND_DEVIATION) - 1 + categories,)
    assert np.allclose(task.train.inputs[:, :9], 0)
    assert (task.train.inputs[:, 9:].sum(axis=1) == len(CATEGORIES)).all()


def test_duration_leaks_the_outcome_and_is_kept_only_on_request(tmp_path: Path) -> None:
    write_bank(tmp_path / "bank-additional-full.csv", bank_rows(10))
    without, with_it = load("bank", tmp_path), load("bank:with-duration", tmp_path)
    assert with_it.train.input_shape[0] == without.train.input_shape[0] + 1
    with refusal(LocalProtocolError, "bank:all", "bank:with-duration"):
        load("bank:all", tmp_path)


def test_bank_has_one_output_for_mse_and_two_for_ce(tmp_path: Path) -> None:
    write_bank(tmp_path / "bank-additional-full.csv", bank_rows(10))
    models = [load("bank", tmp_path, loss=loss).build_model() for loss in ("mse", "ce")]
    inputs = torch.zeros(2, 64)
    assert [model(inputs).shape[1] for model in models] == [1, 2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"age": "old"}, "age is 'old'"),
        ({"job": "wizard"}, "job is 'wizard'"),
        ({"y": "maybe"}, "y is 'maybe'"),
        ({"age": "nan"}, "must be finite"),
    ],
)
def test_a_bad_value_is_named_with_line_and_column(
    tmp_path: Path, changes: dict[str, str], message: str
) -> None:
    path = tmp_path / "bank-additional-full.csv"
    write_bank(path, bank_rows(5, **changes))
    with pytest.raises(LocalProtocolError, match=message):
        read_bank(path, with_duration=False)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bank-additional-full.csv"
    write_bank(path, [{"age": "1", "y": "no"}])
    with refusal(LocalProtocolError, "campaign", "cons.conf.idx", "poutcome"):
        read_bank(path, with_duration=False)


# the real files, where the environment names them


def test_the_real_bank_file_has_the_statistics_written_in_the_code(real_data: Path) -> None:
    everything = load("bank:with-duration", real_data)
    numbers = np.concatenate([everything.train.inputs, everything.test.inputs])[:, : len(MEAN_AND_DEVIATION)]
    labels = np.concatenate([everything.train.targets, everything.test.targets])
    assert len(labels) == 41188
    assert labels.sum() == 4640
    assert abs(numbers.mean(axis=0)).max() < 1e-3
    assert abs(numbers.std(axis=0) - 1).max() < 1e-3


@pytest.mark.parametrize(
    ("name", "train", "test", "classes"),
    [("mnist", 60000, 10000, 10), ("cifar10", 20000, 5000, 10), ("ham10000", 7979, 2036, 7)],
)
def test_the_real_image_files_load(real_data: Path, name: str, train: int, test: int, classes: int) -> None:
    task = load(name, real_data)
    assert (len(task.train), len(task.test)) == (train, test)
    assert set(task.train.targets.tolist()) == set(range(classes))
