"""Pictures from high up: area averages by hand and by a slow reference, and what a task becomes."""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skyfed.errors import BadInputError
from skyfed.tasks import Samples, Task
from skyfed.tasks.blur import coarse, pixels_from, seen_from
from skyfed.tasks.cache import Pictures


def random_pictures(count: int, side: int = 32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 3, side, side), np.uint8)


def picture_task(side: int = 32) -> Task:
    labels = np.arange(6, dtype=np.uint8) % 2
    return Pictures(random_pictures(6, side), labels, random_pictures(4, side, 1), labels[:4], ("cat", "dog")).task()


def cell_mean(picture: np.ndarray, height: int, width: int, row: int, column: int) -> int:
    """Return the mean over one cell, in fractions, halves up."""
    total, (tall, wide) = Fraction(0), picture.shape
    for i in range(tall):
        for j in range(wide):
            down = min(Fraction(i + 1), Fraction((row + 1) * tall, height)) - max(
                Fraction(i), Fraction(row * tall, height)
            )
            across = min(Fraction(j + 1), Fraction((column + 1) * wide, width)) - max(
                Fraction(j), Fraction(column * wide, width)
            )
            total += max(down, Fraction(0)) * max(across, Fraction(0)) * int(picture[i, j])
    return math.floor(total * height * width / (tall * wide) + Fraction(1, 2))


def test_a_whole_factor_by_hand():
    picture = np.array([[[[0, 4, 100, 100], [8, 0, 100, 102], [1, 1, 0, 255], [1, 2, 255, 0]]]], np.uint8)
    assert coarse(picture, 2, 2)[0, 0].tolist() == [[3, 3, 101, 101]] * 2 + [[1, 1, 128, 128]] * 2  # 100.5, 1.25, 127.5


def test_a_broken_factor_by_hand():
    row = np.array([[[[0, 30, 90]]]], np.uint8)  # two cells of one and a half pixels: (0 + 15) / 1.5, (15 + 90) / 1.5
    assert coarse(row, 1, 2)[0, 0].tolist() == [[10, 70, 70]]  # the middle pixel's centre is on the border


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 7), st.integers(1, 7), st.data())
def test_every_pixel_has_the_mean_of_the_cell_that_holds_its_centre(tall, wide, data):
    height, width = data.draw(st.integers(1, tall)), data.draw(st.integers(1, wide))
    picture = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, 256, (tall, wide), np.uint8)
    seen = coarse(picture[None, None], height, width)[0, 0]
    for i in range(tall):
        for j in range(wide):
            cell = math.floor((i + 0.5) * height / tall), math.floor((j + 0.5) * width / wide)
            assert seen[i, j] == cell_mean(picture, height, width, *cell)


def test_large_pictures_are_as_exact_as_small_ones():
    """Sums over 300 x 300 pixels no longer fit float32."""
    picture = np.full((1, 1, 300, 300), 200, np.uint8)
    picture.reshape(-1)[: 300 * 150 - 1] += 1  # one short of 200.5, which float32 cannot tell from it
    assert (coarse(picture, 1, 1) == 200).all()
    picture[0, 0, 299, 299] += 1
    assert (coarse(picture, 1, 1) == 201).all()
    white = np.full((1, 1, 300, 300), 255, np.uint8)
    assert (coarse(white, 7, 299) == 255).all()


def test_many_pictures_are_averaged_each_for_itself():
    many = random_pictures(5000, 4)
    assert (coarse(many, 3, 2)[4321] == coarse(many[4321:4322], 3, 2)[0]).all()


@pytest.mark.parametrize(
    ("altitude", "pixels"), [(20, 32), (50, 32), (50.1, 32), (100, 16), (75, 21), (1600, 1), (1e6, 1)]
)
def test_pixels_by_hand(altitude, pixels):
    assert pixels_from(32, altitude, 50.0) == pixels


@pytest.mark.parametrize("altitude", [10.0, 50.0, 50.1])
def test_up_to_the_sharp_altitude_the_task_is_the_same(altitude):
    task = picture_task()
    assert seen_from(task, altitude, 50.0) is task


def detail(task: Task) -> float:
    """Return the mean square difference between neighbouring pixels."""
    return float((np.diff(task.train.inputs.astype(float), axis=3) ** 2).mean())


def test_the_higher_the_blurrier():
    task = picture_task()
    details = [detail(seen_from(task, altitude, 50.0)) for altitude in (50.0, 60.0, 100.0, 200.0, 400.0, 2000.0)]
    assert all(a > b for a, b in pairwise(details))
    assert details[-1] == 0  # one pixel


def test_training_and_test_pictures_are_blurred_and_nothing_else_changes():
    task = picture_task()
    seen = seen_from(task, 100.0, 50.0)
    for before, after in ((task.train, seen.train), (task.test, seen.test)):
        assert (after.inputs == coarse(before.inputs, 16, 16)).all()
        assert (after.inputs != before.inputs).any()
        assert after.inputs.dtype == np.uint8
        assert after.targets is before.targets
        assert after.places is before.places
    assert (seen.places, seen.outputs, seen.loss, seen.shape) == (task.places, task.outputs, task.loss, task.shape)


def test_the_content_hash_follows_the_pictures():
    task = picture_task()
    hashes = {seen_from(task, altitude, 50.0).content_hash() for altitude in (50.0, 75.0, 100.0)}
    assert len(hashes) == 3
    assert seen_from(task, 100.0, 50.0).content_hash() == seen_from(picture_task(), 100.1, 50.0).content_hash()
    other = seen_from(picture_task(8), 100.0, 50.0)
    assert other.content_hash() not in hashes


@pytest.mark.parametrize("inputs", [np.zeros((4, 3, 8, 8), np.float32), np.zeros((4, 2, 128), np.uint8)])
def test_what_is_no_picture_cannot_be_blurred(inputs):
    samples = Samples(inputs, np.zeros(4, np.int64), np.zeros(4, np.int64))
    task = Task(samples, samples, ("here",), 1)
    assert seen_from(task, 50.0, 50.0) is task
    with pytest.raises(BadInputError, match=r"sensor.altitude = 60 .* at most 50") as caught:
        seen_from(task, 60.0, 50.0)
    assert "\n" not in str(caught.value)
