"""What the problems train on: validation held out, images normalised, batches shuffled and augmented."""

from dataclasses import replace

import numpy as np
import pytest
from test_data import write_cifar, write_cifar100, write_mnist

from gbackprop.experiments import data, problems
from gbackprop.experiments.problems import PROBLEMS, Split, batches, load_problem, problem


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(params=list(PROBLEMS))
def entry(request):
    return problem(request.param)


# --- splits -----------------------------------------------------------------------------------------


def write_images(folder, rng, name, train=1000, test=300):
    """Files of a problem's set, smaller than published."""
    folder.mkdir(parents=True, exist_ok=True)
    if name == "cifar-10":
        write_cifar(folder / "data_batch_1.bin", rng, train)
        write_cifar(folder / "test_batch.bin", rng, test)
    elif name == "cifar-100":
        write_cifar100(folder / "train.bin", rng, train)
        write_cifar100(folder / "test.bin", rng, test)
    else:
        write_mnist(folder, rng, train, test, (28, 28), compress=False)


def counts(entry):
    return (1500, 300) if entry.batch == 256 else (900, 130)


def test_split(entry, tmp_path, rng):
    train, test = counts(entry)
    write_images(tmp_path / entry.data, rng, entry.data, train, test)
    images, split = data.load(entry.data, tmp_path), load_problem(entry, tmp_path)
    share = 6 if "mnist" in entry.data else 5
    assert data.PUBLISHED[entry.data].train // share == 10_000
    kept, held_out = np.split(np.arange(train), [train - train // share])
    np.testing.assert_array_equal(split.train_y, images.train_y[kept])
    np.testing.assert_array_equal(split.valid_y, images.train_y[held_out])
    np.testing.assert_array_equal(split.test_y, images.test_y)
    pixels = images.train_x.astype("float64")
    mean, deviation = (pixels.mean((0, 2, 3)), pixels.std((0, 2, 3))) if entry.augmented else (0, 1)
    for x, raw in (
        (split.train_x, images.train_x[kept]),
        (split.valid_x, images.train_x[held_out]),
        (split.test_x, images.test_x),
    ):
        assert x.dtype == np.float32
        assert x.shape[1:] == entry.shape
        want = (raw - np.reshape(mean, (-1, 1, 1))) / np.reshape(deviation, (-1, 1, 1))
        np.testing.assert_allclose(x.reshape(raw.shape), want, atol=2e-6)
    whole = data.PUBLISHED[entry.data].train
    assert f"trained on {len(kept)} and validated on {len(held_out)} images, of {train} training" in split.note
    assert f"the published set has {whole}; tested on {test} images where the published set has 10000" in split.note


def test_a_missing_test_batch_is_noted(tmp_path, rng):
    for number in (1, 5):
        write_cifar(tmp_path / f"data_batch_{number}.bin", rng, 700)
    note = load_problem(problem("cifar10_3c3d"), tmp_path).note
    assert "held out is data_batch_5.bin, not trained on" in note
    assert "trained on 560 and validated on 140 images, of 700 training images" in note


def test_the_digest_is_of_images_and_labels_alone(tmp_path, rng, monkeypatch):
    """Other words of a note, or of a class, are no other images: a study of before goes on."""
    write_images(tmp_path, rng, "mnist")
    images, entry = data.load("mnist", tmp_path), problem("mnist_logreg")

    def digest_with(**other):
        monkeypatch.setattr(data, "load", lambda *_: replace(images, **other))
        return load_problem(entry, tmp_path).digest

    assert digest_with() == digest_with(note="other words", classes=tuple("abcdefghij"))
    for name in ("train_x", "train_y", "test_x", "test_y"):
        assert digest_with(**{name: getattr(images, name)[::-1]}) != digest_with()


def test_a_complete_set_needs_no_note():
    from gbackprop.experiments.problems import _note

    image = np.zeros((1, 3, 1, 1), "float32")
    complete = data.Dataset("cifar-10", *(np.broadcast_to(image, (50_000, 3, 1, 1)), image), image, image, ())
    complete = data.Dataset("cifar-10", complete.train_x, image, complete.train_x[:10_000], image, ())
    assert _note(complete, 40_000, 10_000) == ""


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [(140, 200, "train on, got 112"), (160, 200, "validate on, got 32"), (600, 200, "validate on, got 120"),
     (700, 90, "90")],
)
def test_too_few_images(tmp_path, rng, train, test, message):
    write_images(tmp_path, rng, "cifar-10", train, test)
    with pytest.raises(ValueError, match=rf"too few images of cifar-10: .*a batch of 128 to .*{message}") as caught:
        load_problem(problem("cifar10_3c3d"), tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_images_of_another_size(tmp_path, rng):
    write_mnist(tmp_path, rng, 1000, 200, (14, 56), compress=False)
    with pytest.raises(ValueError, match=r"expected mnist images of shape \(1, 28, 28\), got \(1, 14, 56\)"):
        load_problem(problem("mnist_logreg"), tmp_path)


def test_images_that_cannot_be_normalised(tmp_path):
    for name in ("data_batch_1.bin", "test_batch.bin"):
        (tmp_path / name).write_bytes(bytes(1000 * 3073))
    with pytest.raises(ValueError, match=r"cifar-10: expected images that vary in every channel, got deviations \[0"):
        load_problem(problem("cifar10_3c3d"), tmp_path)


# --- batches ----------------------------------------------------------------------------------------


def made_up(entry, rng, samples):
    """Images from 0 to 1, normalised by made-up statistics, each label the number of its image."""
    x = rng.random((samples, *entry.shape), dtype="float32")
    mean, deviation = (np.float32([0.5, 0.4, 0.3])[:, None, None], np.float32([0.2, 0.3, 0.1])[:, None, None])
    if not entry.augmented:
        mean = deviation = None
    normalised = x if mean is None else (x - mean) / deviation
    y = np.arange(samples)
    return x, Split(normalised, y, normalised[:1], y[:1], normalised[:1], y[:1], mean=mean, deviation=deviation)


def test_an_epoch(entry, rng, monkeypatch):
    monkeypatch.setattr(problems, "augment", lambda x, rng: x)
    _, split = made_up(entry, rng, 2 * entry.batch + 50)
    epochs = [list(batches(split, entry, np.random.default_rng(seed))) for seed in (1, 1, 2)]
    for epoch in epochs:
        assert [y.shape for _, y in epoch] == 2 * [(entry.batch,)]
        numbers = np.concatenate([y for _, y in epoch])
        assert len(set(numbers)) == 2 * entry.batch  # none twice
        for x, y in epoch:
            assert x.dtype == np.float32
            assert x.shape == (entry.batch, *entry.shape)
            np.testing.assert_allclose(x, split.train_x[y], atol=2e-6)
    for (x, y), (other_x, other_y) in zip(*epochs[:2], strict=True):
        np.testing.assert_array_equal(y, other_y)
        np.testing.assert_array_equal(x, other_x)
    assert np.any(epochs[0][0][1] != epochs[2][0][1])
    assert np.any(np.diff(epochs[0][0][1]) != 1)


def test_augmentation_works_on_raw_images(rng, monkeypatch):
    entry, seen = problem("cifar10_3c3d"), []

    def double(x, rng):
        seen.append(x)
        return 2 * x

    monkeypatch.setattr(problems, "augment", double)
    raw, split = made_up(entry, rng, 130)
    ((x, y),) = batches(split, entry, rng)
    np.testing.assert_allclose(seen[0], raw[y], atol=1e-6)
    np.testing.assert_allclose(x, (2 * raw[y] - split.mean) / split.deviation, atol=2e-5)


def test_augmented_batches_are_a_function_of_the_rng_and_differ_between_epochs(rng):
    entry = problem("cifar10_3c3d")
    _, split = made_up(entry, rng, 260)
    first, again = ([x for x, _ in batches(split, entry, np.random.default_rng(5))] for _ in range(2))
    for x, same_x in zip(first, again, strict=True):
        np.testing.assert_array_equal(x, same_x)
    generator = np.random.default_rng(5)
    one, two = (
        {n: image for x, y in batches(split, entry, generator) for n, image in zip(y, x, strict=True)}
        for _ in range(2)
    )
    shared = set(one) & set(two)
    assert len(shared) > 200
    assert all(np.any(one[n] != two[n]) for n in shared)
