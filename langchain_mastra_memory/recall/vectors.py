"""Vectors as int8 with one scale each, and products that don't depend on the machine.

A unit vector of d numbers takes d bytes and a scale; recall is that of float32 to 0.1 point. Products run in float32
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


def quantize(vector: Sequence[float] | npt.NDArray[np.floating]) -> tuple[float, bytes]:
    """Return the scale and the int8 bytes of a vector's direction.

    Args:
        vector: Any finite numbers; the length of the vector is not kept, cosines don't need it.

    Returns:
        `(scale, bytes)`: the unit vector is about `scale * int8`. A zero vector gives scale 0.

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
        return 0.0, bytes(values.size)
    levels = np.rint(values * (_LEVELS / peak)).astype(np.int8)
    # The norm of the rounded numbers, not of the given ones: a vector's cosine with itself is then 1.
    return 1.0 / math.sqrt(float(np.square(levels.astype(np.float64)).sum())), levels.tobytes()


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
