"""Densities of texts against scikit-learn and scipy, and what is kept of them."""

import numpy as np
import pytest
from helpers import make_model
from safetensors.numpy import load_file, save_file
from scipy.spatial.distance import mahalanobis
from sklearn.covariance import LedoitWolf, MinCovDet
from sklearn.decomposition import KernelPCA

from clue_hf.errors import UserError
from clue_hf.models.uncertainty_file import DENSITY_FILE
from clue_hf.scorers.density import Density


SIZE = 16


@pytest.fixture(scope="module")
def vectors():
    generator = np.random.default_rng(0)
    mixing = generator.normal(size=(SIZE, SIZE))
    texts, background = (generator.normal(size=(300, SIZE)) @ mixing + shift for shift in (1.0, -1.0))
    return texts, background


def test_distances_are_those_of_scikit_learn(vectors):
    texts, background = vectors
    density = Density.fit(texts, background, seed=3)
    usual, other = LedoitWolf().fit(texts), LedoitWolf().fit(background)
    kernel = KernelPCA(30, kernel="rbf", remove_zero_eig=True, random_state=3).fit(texts)
    robust = MinCovDet(random_state=3).fit(kernel.transform(texts))
    for vector in [*texts[:3], *background[:3], texts[0] + 3]:
        assert density.distance(vector) == pytest.approx(mahalanobis(vector, usual.location_, usual.precision_))
        expected = mahalanobis(vector, other.location_, other.precision_)
        assert density.background_distance(vector) == pytest.approx(expected)
        expected = robust.mahalanobis(kernel.transform(vector[None]))[0]
        assert density.robust_distance(vector) == pytest.approx(expected, rel=1e-4)


def test_far_texts_are_far(vectors):
    texts, background = vectors
    density = Density.fit(texts[:200], background)
    near, far = (np.mean([density.distance(vector) for vector in part]) for part in (texts[200:], texts[200:] * 3))
    assert far > 1.5 * near
    relative = [
        density.distance(vector) - density.background_distance(vector) for vector in (texts[250], background[0])
    ]
    assert relative[0] < 0 < relative[1]


def test_fewer_texts_than_features_are_enough():
    texts = np.random.default_rng(1).normal(size=(60, 100))
    density = Density.fit(texts, texts + 1)
    for distance in (density.distance, density.background_distance, density.robust_distance):
        assert np.isfinite([distance(text) for text in texts]).all()
    with pytest.raises(UserError, match="49 texts are too few for a density: use 50 or more"):
        Density.fit(texts[:49], texts[:49])


def test_what_is_saved_is_loaded(vectors, tmp_path):
    density = Density.fit(*vectors)
    density.save(tmp_path)
    loaded = Density.load(str(tmp_path), make_model("t5"))
    for vector in vectors[0][:5]:
        for name in ("distance", "background_distance", "robust_distance"):
            assert getattr(loaded, name)(vector) == pytest.approx(getattr(density, name)(vector), rel=1e-4)
    (tmp_path / DENSITY_FILE).unlink()
    assert Density.load(str(tmp_path), make_model("t5")) is None


def damaged(arrays, how):
    return {
        "short": {**arrays, "mean": arrays["mean"][:3]},
        "nan": {**arrays, "projection": arrays["projection"] * np.nan},
        "missing": {name: values for name, values in arrays.items() if name != "landmarks"},
        "unknown": {**arrays, "more": arrays["mean"]},
        "size": {**arrays, "mean": np.zeros(17, np.float32)},
    }[how]


@pytest.mark.parametrize("how", ["short", "nan", "missing", "unknown", "size", "bytes"])
def test_a_damaged_file_is_named(vectors, tmp_path, how):
    Density.fit(*vectors).save(tmp_path)
    path = tmp_path / DENSITY_FILE
    if how == "bytes":
        path.write_bytes(path.read_bytes()[:100])
    else:
        save_file(damaged(load_file(path), how), path)
    with pytest.raises(UserError, match="density.safetensors of .* is damaged, or was fitted to another model"):
        Density.load(str(tmp_path), make_model("t5"))
