"""The whole network for the lists of a group as one numba kernel: from codes to their likelihood, and back.

What a group keeps for the way back stays in the cache, and the next group writes over it.
"""

from typing import Any

import numpy as np

from factorank.models import cpu_end_kernels as ends
from factorank.models import cpu_kernels as blocks
from factorank.models.cpu_layers import turn_matrix
from factorank.models.cpu_vectors import LANES, jit

_fold_blocks, _turn_blocks, _unfold_blocks, _there = blocks.fold, blocks.turn, blocks.unfold, blocks.there
_back, _room_back = blocks.back, blocks.room_back
_fold_head, _unfold_head = ends.fold, ends.unfold
_choose, _through_choice = ends.choose_in_group, ends.through_choice_of_group


@jit
def parts_of(flat: Any, n: Any, width: Any, depth: Any) -> Any:
    """The parameters in their order: values, places, blocks; gain, shift, weight and table of the head."""
    each = 12 * width * width + 13 * width
    at = (2 * n + 1) * width
    values, places = (
        flat[: (n + 1) * width].reshape(n + 1, width),
        flat[(n + 1) * width : at].reshape(n, width),
    )
    stack = flat[at : at + depth * each].reshape(depth, each)
    at += depth * each
    gain, shift = flat[at : at + width], flat[at + width : at + 2 * width]
    at += 2 * width
    weight, table = flat[at : at + n * width].reshape(n, width), flat[at + n * width :].reshape(n, n)
    return values, places, stack, gain, shift, weight, table


@jit
def fold(flat: Any, n: Any, width: Any, depth: Any) -> Any:
    """What :func:`likelihood` reads, from all parameters: gains and shifts of norms become part of the
    weights after them, of which there are transposed ones for the way back."""
    values, places, stack, gain, shift, weight, table = parts_of(flat, n, width, depth)
    folded, turned = np.empty_like(stack), np.empty_like(stack)
    _fold_blocks(stack, width, folded)
    _turn_blocks(folded, width, turned)
    head, bias, turned_head = np.empty_like(weight), np.empty(n, flat.dtype), np.empty((width, n), flat.dtype)
    _fold_head(weight, gain, shift, head, bias)
    turn_matrix(head, turned_head)
    return values, places, folded, turned, head, bias, turned_head, table


@jit
def unfold(flat: Any, n: Any, width: Any, depth: Any, given: Any, out: Any) -> None:
    """``out``, like ``flat``, is the gradient of the parameters, from what :func:`likelihood` gave."""
    _, _, stack, gain, shift, weight, _ = parts_of(flat, n, width, depth)
    of_values, of_places, of_stack, of_gain, of_shift, of_weight, of_table = parts_of(out, n, width, depth)
    values, places, products, sums, head, table = given
    of_values[:] = values
    of_places[:] = places
    _unfold_blocks(stack, width, np.expand_dims(products, 0), np.expand_dims(sums, 0), of_stack)
    _unfold_head(
        weight, gain, shift, np.expand_dims(head, 0), np.expand_dims(table, 0), of_gain, of_shift, of_weight,
        of_table,
    )  # fmt: skip


@jit
def likelihood(
    network: Any, seen: Any, code: Any, share: Any, allowed: Any, hidden: Any, masked: Any, causal: Any,
    noise: Any, drops: Any, heads: Any, eps: Any, start: Any, end: Any, of_out: Any, learns: Any, out: Any,
) -> Any:  # fmt: skip
    """``out (rows,)``: the log-probabilities of the values of ``code (rows, n)``, given what the network
    sees, ``seen (rows, n)``, times their ``share (rows, n)``; for groups start..end-1 of rows. Not a number
    where a value is none.

    ``network`` is what :func:`fold` made, ``eps`` that of the blocks and of the head; from ``hidden`` to
    ``drops`` as in ``cpu_kernels``. With ``learns`` the gradients, given ``of_out (rows,)``, come back: of
    values, places, blocks and their biases, the head's weight and table.
    """
    values, places, stack, turned, head, bias, turned_head, table = network
    (rows, n), width, depth = seen.shape, places.shape[1], len(stack)
    columns, dtype, count = n * LANES, out.dtype, depth if learns else 0
    filled = -(-width // LANES) * LANES
    products, sums = np.zeros((count, 12 * width, filled), dtype), np.zeros((count, 9 * width, LANES), dtype)
    of_head, of_table = np.zeros((n, filled), dtype), np.zeros((n, n), dtype)
    of_values, of_places = np.zeros(values.shape, dtype), np.zeros(places.shape, dtype)
    stream, room = (
        np.empty((width, columns), dtype),
        np.empty((max(count, 1), 14 * width + 2, columns), dtype),
    )
    normed, scale, p = (
        np.empty((width, columns), dtype),
        np.empty(columns, dtype),
        np.empty((n, columns), dtype),
    )
    chosen, room_back = np.empty((LANES, n), dtype), _room_back(stream, products)
    for group in range(start, end):
        first, here = group * LANES, group if masked else 0
        lists = min(LANES, rows - first)
        codes = code[first : first + lists]
        stream[:] = 0
        for t in range(n):
            for lane in range(lists):
                value = min(max(seen[first + lane, t], 0), n)
                for f in range(width):
                    stream[f, t * LANES + lane] = values[value, f] + places[t, f]
        _there(stream, hidden[here], masked, causal, noise, drops, stack, heads, eps[0], first, learns, room)
        _choose(stream, codes, head, bias, table, allowed, eps[1], normed, scale, p, chosen)
        for lane in range(lists):
            total = dtype.type(0)
            for t in range(n):
                part = share[first + lane, t]
                total += part * chosen[lane, t] if part != 0 else dtype.type(0)
                total = total if 0 <= seen[first + lane, t] <= n else dtype.type(np.nan)
                chosen[lane, t] = part * of_out[first + lane]
            out[first + lane] = total
        if learns:
            _through_choice(chosen, codes, turned_head, normed, scale, p, stream, of_head, of_table)
            _back(
                stream, hidden[here], masked, causal, noise, drops, turned, heads, first, room, room_back,
                products, sums,
            )  # fmt: skip
            for t in range(n):
                for lane in range(lists):
                    value = min(max(seen[first + lane, t], 0), n)
                    for f in range(width):
                        of_values[value, f] += stream[f, t * LANES + lane]
                        of_places[t, f] += stream[f, t * LANES + lane]
    return of_values, of_places, products, sums, of_head, of_table


@jit
def hide(
    present: Any, padded: Any, sets: Any, code: Any, strata: Any, scores: Any, seen: Any, share: Any
) -> None:
    """Choose masked positions, as ``masked.loss`` says: ``seen (rows, n)`` is the code with n at these, and
    ``share (rows, n)`` what their log-probabilities count in the loss.

    ``sets`` says whether the masked are any positions, 0, the last ones, 1, or all, 2."""
    rows, n = code.shape
    kind = share.dtype.type
    for row in range(rows):
        length = n
        if padded:
            length = 0
            for t in range(n):
                length += present[row, t]
        count = length
        if sets < 2:
            count = max(min(np.int64(strata[row] * strata.dtype.type(length)), length - 1), 0) + 1
        taken = 0
        for t in range(n):
            before = 0  # positions that are masked before this one
            for other in range(n if sets == 0 else 0):
                before += (not padded or present[row, other]) and scores[row, other] < scores[row, t]
            if sets > 0:
                before = length - 1 - t
            masked = before < count and (not padded or present[row, t])
            seen[row, t] = n if masked else code[row, t]
            share[row, t] = masked
            taken += masked
        for t in range(n):
            share[row, t] *= -kind(length) / kind(max(taken, 1))
