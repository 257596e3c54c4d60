"""Vectors as int8, and products that don't depend on the machine.

A vector of d numbers takes d bytes; recall is that of float32 to 0.1 point. Products run in float32
over whole numbers. The query is scaled so that every partial sum stays below 2**24, where float32 is exact, so that
the order of summation, the number of BLAS threads and the place of a row in its matrix change nothing: SQLite,
PostgreSQL, a cached scope and a fresh one give the same list.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

_LEVELS: Final = 127
_EXACT: Final = 2**24


def quantize(vector: Sequence[float] | npt.NDArray[np.floating]) -> bytes:
    """Return the int8 bytes of a vector's direction; see `scales_of` for its length.

    Args:
        vector: Any finite numbers; the length of the vector is not kept, cosines don't need it.

    Raises:
        ValueError: The vector is empty, or a number is not finite.
    """
    values = np.asarray(vector, dtype=np.float64)
    if values.ndim != 1 or not values.size:
        raise ValueError("an embedding must be a list of at least one number")
    if not np.isfinite(values).all():
        raise ValueError("an embedding has a number that is not finite")
    peak = float(np.abs(values).max())
    if peak == 0.0:
        return bytes(values.size)
    return np.rint(values * (_LEVELS / peak)).astype(np.int8).tobytes()


def scales_of(matrix: Floats) -> npt.NDArray[np.float64]:
    """Return one over the norm of each row, 0 for a row of zeros.

    The scale is that of the rounded numbers, so a vector's cosine with itself is 1, and nothing needs storing.
    """
    norms = np.sqrt(np.einsum("ij,ij->i", matrix, matrix).astype(np.float64))
    scales: npt.NDArray[np.float64] = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
    return scales


def unpack(blobs: Sequence[bytes], dimension: int) -> Floats:
    """Return the int8 rows as a float32 matrix of shape (rows, dimension)."""
    flat = np.frombuffer(b"".join(blobs), dtype=np.int8)
    return flat.astype(np.float32).reshape(len(blobs), dimension)


@dataclass(frozen=True, slots=True)
class QueryVector:
    """A query's direction in whole numbers.

    Attributes:
        levels: Whole numbers in float32, shape (dimension,).
        scale: The unit vector is about `scale * levels`.
    """

    levels: Floats
    scale: float

    @classmethod
    def of(cls, vector: Sequence[float]) -> QueryVector:
        """Make one of an embedding.

        Raises:
            ValueError: As `quantize`.
        """
        quantize(vector)  # the same checks
        values = np.asarray(vector, dtype=np.float64)
        norm = float(np.sqrt(np.square(values).sum()))
        if norm == 0.0:
            return cls(np.zeros(values.size, dtype=np.float32), 0.0)
        root = math.sqrt(values.size)
        # Cauchy-Schwarz: |partial sum| <= |query| |row|, and a row of int8 has a norm of at most 127 sqrt(d).
        wanted = _EXACT / (_LEVELS * root) - root
        levels = np.rint(values * (max(wanted, 1.0) / norm))
        length = float(np.sqrt(np.square(levels).sum()))
        return cls(levels.astype(np.float32), 1.0 / length if length else 0.0)

    @property
    def dimension(self) -> int:
        """How many numbers it has."""
        return int(self.levels.size)

    def cosines(self, matrix: Floats, scales: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the cosine with each row of a matrix made by `unpack`.

        Args:
            matrix: Shape (rows, dimension).
            scales: Shape (rows,).

        Returns:
            Shape (rows,), from -1 to 1.
        """
        return np.asarray((matrix @ self.levels).astype(np.float64) * (scales * self.scale))
