"""Factorizations as matrices of fractions, from their public numbers alone: what tests of mechanisms compare with."""

from fractions import Fraction
from functools import lru_cache

import numpy as np

from susurrus.mechanisms.arrays import Floats
from susurrus.mechanisms.histogram.factorization import Factorization

Matrix = list[list[Fraction]]


def entry(factorization: Factorization, row: int, column: int) -> Fraction:
    """c_(row - column) E_column, both from 0 on."""
    if row < column:
        return Fraction(0)
    scale = Fraction(
        (factorization.column_scales or (1,) * factorization.triggers)[column], 1 << factorization.scale_bits
    )
    return Fraction(factorization.numerators[row - column], 1 << factorization.bits) * scale


def strategy_matrix(factorization: Factorization) -> Matrix:
    """C E as [row][column]."""
    size = factorization.triggers
    return [[entry(factorization, row, column) for column in range(size)] for row in range(size)]


@lru_cache(maxsize=64)
def decoding_rows(factorization: Factorization) -> Matrix:
    """B as [row][column], from B (C E) = A by substitution from the diagonal to the left."""
    c, size = strategy_matrix(factorization), factorization.triggers
    rows = []
    for t in range(size):
        row = [Fraction(0)] * size
        for s in range(t, -1, -1):
            rest = sum((row[k] * c[k][s] for k in range(s + 1, t + 1)), Fraction(0))
            row[s] = (1 - rest) / c[s][s]
        rows.append(row)
    return rows


def float_matrix(factorization: Factorization) -> Floats:
    """C E as float64[T, T], [row, column]."""
    size = factorization.triggers
    lag = np.arange(size)[:, None] - np.arange(size)[None, :]
    c = np.array(factorization.numerators, np.float64) / 2.0**factorization.bits
    scales = np.array(factorization.column_scales or (1,) * size, np.float64) / 2.0**factorization.scale_bits
    return np.where(lag >= 0, c[np.abs(lag)], 0.0) * scales


def float_decoding(factorization: Factorization) -> Floats:
    """B as float64[T, T], [row, column], by inversion."""
    size = factorization.triggers
    return np.asarray(np.tril(np.ones((size, size))) @ np.linalg.inv(float_matrix(factorization)))
