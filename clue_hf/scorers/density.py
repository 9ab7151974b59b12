"""
Where the hidden states of a language model's texts usually are: what lies far from there is uncertain.

Fitted on the references of training rows. A text is one vector, the mean over its tokens of what the output layer is
applied to. Kept beside the model in a safetensors file.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from ..errors import UserError
from ..models.kind import unwrap
from ..models.uncertainty_file import DENSITY_FILE, optional_file
from ..tasks.head import read_head


#: Fewer texts say nothing about where texts usually are.
MIN_TEXTS = 50
#: Texts of the kernel, whose cost grows with their square, and the largest number of its components.
MAX_LANDMARKS, MAX_COMPONENTS = 1000, 100


@dataclass(frozen=True)
class Density:
    """
    The densities of the texts' vectors.

    Args:
        mean (`np.ndarray` of shape `(features,)`), precision (of shape `(features, features)`):
            Of a normal distribution around the texts given their sources; the covariance is shrunk (Ledoit-Wolf), so
            that it can be inverted with fewer texts than features, too.
        background_mean, background_precision:
            The same of the texts without their sources.
        landmarks (`np.ndarray` of shape `(landmarks, features)`), landmark_means (of shape `(landmarks,)`):
            Texts that others are compared with by the kernel `exp(-|x - y|^2 / features)`, and the means of the
            kernel between each and all.
        projection (`np.ndarray` of shape `(landmarks, components)`):
            From the centred kernel to its principal components.
        robust_mean (`np.ndarray` of shape `(components,)`), robust_precision (of shape `(components, components)`):
            Of a normal distribution around most of the texts (minimum covariance determinant).
    """

    mean: np.ndarray
    precision: np.ndarray
    background_mean: np.ndarray
    background_precision: np.ndarray
    landmarks: np.ndarray
    landmark_means: np.ndarray
    projection: np.ndarray
    robust_mean: np.ndarray
    robust_precision: np.ndarray

    @classmethod
    def fit(cls, vectors: np.ndarray, background: np.ndarray, seed: int = 0) -> Density:
        """From the vectors of texts with their sources, and of the same texts without (texts, features)."""
        from sklearn.covariance import LedoitWolf, MinCovDet
        from sklearn.decomposition import KernelPCA

        if len(vectors) < MIN_TEXTS:
            raise UserError(f"{len(vectors)} texts are too few for a density: use {MIN_TEXTS} or more.")
        usual, other = LedoitWolf().fit(vectors), LedoitWolf().fit(background)
        chosen = np.random.default_rng(seed).permutation(len(vectors))[:MAX_LANDMARKS]
        landmarks = vectors[np.sort(chosen)]
        components = min(MAX_COMPONENTS, len(landmarks) // 10)
        kernel = KernelPCA(components, kernel="rbf", remove_zero_eig=True, random_state=seed).fit(landmarks)
        projection = kernel.eigenvectors_ / np.sqrt(kernel.eigenvalues_)
        means = _kernel(landmarks, landmarks).mean(0)
        robust = MinCovDet(random_state=seed).fit(_components(landmarks, landmarks, means, projection))
        return cls(
            usual.location_,
            usual.precision_,
            other.location_,
            other.precision_,
            landmarks,
            means,
            projection,
            robust.location_,
            robust.precision_,
        )

    def distance(self, vector: np.ndarray) -> float:
        """The Mahalanobis distance of a text from those with their sources."""
        return _squared_distance(vector, self.mean, self.precision) ** 0.5

    def background_distance(self, vector: np.ndarray) -> float:
        """The same from those without."""
        return _squared_distance(vector, self.background_mean, self.background_precision) ** 0.5

    def robust_distance(self, vector: np.ndarray) -> float:
        """The squared Mahalanobis distance from most of the texts, in the components of the kernel."""
        components = _components(vector[None], self.landmarks, self.landmark_means, self.projection)[0]
        return _squared_distance(components, self.robust_mean, self.robust_precision)

    def save(self, folder: str | Path) -> None:
        """Writes the file beside a model."""
        arrays = {name: np.ascontiguousarray(values, dtype=np.float32) for name, values in vars(self).items()}
        save_file(arrays, Path(folder) / DENSITY_FILE)

    @classmethod
    def load(cls, name: str, model: Any) -> Density | None:
        """The density that was saved with a model, by its name or folder; `None` where there is none."""
        path = optional_file(name, DENSITY_FILE)
        if path is None:
            return None
        size = read_head(unwrap(model)).weight.shape[1]
        try:
            arrays = {key: values.astype(np.float64) for key, values in load_file(path).items()}
            density = cls(**arrays)
            density._check(size)
        except (SafetensorError, TypeError, ValueError) as error:
            raise UserError(
                f"{DENSITY_FILE} of {name!r} is damaged, or was fitted to another model ({error}). Delete it, or fit "
                "it again: clue-hf calibrate --density_split train"
            ) from error
        return density

    def _check(self, size: int) -> None:
        """Raises where the arrays do not fit together, or not to hidden states of this size."""
        landmarks, components = len(self.landmarks), len(self.robust_mean)
        shapes = {
            "mean": (size,),
            "precision": (size, size),
            "background_mean": (size,),
            "background_precision": (size, size),
            "landmarks": (landmarks, size),
            "landmark_means": (landmarks,),
            "projection": (landmarks, components),
            "robust_mean": (components,),
            "robust_precision": (components, components),
        }
        for field in fields(self):
            values = getattr(self, field.name)
            if values.shape != shapes[field.name] or not np.isfinite(values).all():
                raise ValueError(f"{field.name} has the shape {values.shape}, or is not finite")


def _squared_distance(vector: np.ndarray, mean: np.ndarray, precision: np.ndarray) -> float:
    difference = vector - mean
    return max(float(difference @ precision @ difference), 0.0)


def _kernel(vectors: np.ndarray, landmarks: np.ndarray) -> np.ndarray:
    squares = (vectors**2).sum(1)[:, None] + (landmarks**2).sum(1) - 2 * vectors @ landmarks.T
    return np.exp(-squares.clip(min=0) / landmarks.shape[1])


def _components(vectors: np.ndarray, landmarks: np.ndarray, means: np.ndarray, projection: np.ndarray) -> np.ndarray:
    """The principal components of vectors by the kernel, centred as that of the landmarks."""
    kernel = _kernel(vectors, landmarks)
    return (kernel - means - kernel.mean(1, keepdims=True) + means.mean()) @ projection
