// The puzzle solver: the network for photographs, then the board that agrees best with what it says.
// The same steps as factorank/jigsaw/photographs in the library, whose answers the tests compare with these.

import { bestAssignment } from "./assignment.js";
import { facts, model } from "./runtime.js";

const MOST_ROUNDS = 20;

let warm;

/** Loads the graph and runs it once on a small puzzle: the first run takes longer than others. */
export function ready() {
  warm ??= Promise.all([facts, model("photographs")]).then(async ([, run]) => {
    await evaluate(run, new Float32Array(4 * 64 * 64 * 3), 64, 2, 2, 1);
    return run;
  });
  return warm;
}

/** Rounds in which every piece hears of every side of the picture. */
export const roundsFor = (rows, columns) => Math.min(6 + Math.max(rows, columns), MOST_ROUNDS);

/**
 * Reads square pieces, RGB values 0 to 255 (n, side, side, 3): the logits (n, slots) after some rounds, and
 * the log-probabilities of what lies beside each border.
 */
export async function read(pieces, side, rows, columns, rounds = roundsFor(rows, columns)) {
  return evaluate(await ready(), pieces, side, rows, columns, rounds);
}

async function evaluate(run, pieces, side, rows, columns, rounds) {
  const outputs = await run({
    pieces: { type: "float32", data: pieces, dims: [rows * columns, side, side, 3] },
    board: { type: "float32", data: new Float32Array(rows * columns), dims: [rows, columns] },
    rounds: { type: "int64", data: BigInt64Array.of(BigInt(rounds)), dims: [] },
  });
  const data = Object.fromEntries(Object.entries(outputs).map(([name, tensor]) => [name, tensor.data]));
  return {
    rows,
    columns,
    logits: data.logits,
    right: [data.after_right, data.before_left],
    below: [data.after_bottom, data.before_top],
  };
}

/** Log-probabilities (n, slots) of the slot of each piece. */
export function beliefs(logits, n) {
  const result = new Float64Array(n * n);
  for (let i = 0; i < n; i++) {
    const row = logits.subarray(i * n, (i + 1) * n);
    const top = row.reduce((a, b) => Math.max(a, b), -Infinity);
    const total = Math.log(row.reduce((sum, x) => sum + Math.exp(x - top), 0)) + top;
    for (let j = 0; j < n; j++) result[i * n + j] = row[j] - total;
  }
  return result;
}

/** The likeliest slot of each piece by the beliefs alone. */
export const assign = (places, n) => bestAssignment(n, (i, j) => Math.max(places[i * n + j], -1e6));

/** A solution: slots, the probability of the whole and of each piece. */
export async function settle(reading, { search = true } = {}) {
  const { photographs } = await facts;
  const { rows, columns } = reading;
  const n = rows * columns;
  const places = beliefs(reading.logits, n);
  const scores = new Scores(reading, places, photographs);
  const board = new Array(n);
  assign(places, n).forEach((slot, piece) => (board[slot] = piece));
  if (search) scores.polish(board);
  const slots = new Array(n);
  board.forEach((piece, slot) => (slots[piece] = slot));
  const fits = [];
  const believed = [];
  slots.forEach((slot, piece) => {
    const gains = Array.from({ length: n }, (_, other) => scores.gain(board, other, slot));
    const top = Math.max(...gains);
    fits.push(gains[piece] - top - Math.log(gains.reduce((sum, x) => sum + Math.exp(x - top), 0)));
    believed.push(places[piece * n + slot]);
  });
  const total = (values) => values.reduce((a, b) => a + b, 0);
  const distance = [fits, believed].map((values) => Math.log(1e-4 - total(values)));
  const odds = (x) => {
    const clipped = Math.min(Math.max(x, -30), -1e-9);
    return clipped - Math.log(-Math.expm1(clipped));
  };
  const logistic = ([constant, a, b], x, y) => {
    const value = Math.min(Math.max(constant + a * x + b * y, -30), 30);
    return 1 / (1 + Math.exp(-value));
  };
  return {
    slots,
    places,
    probability: logistic(photographs.whole, ...distance),
    each: slots.map((_, i) => logistic(photographs.each, odds(fits[i]), odds(believed[i]))),
  };
}

/** What boards are scored by: what lies beside each border, and the slot of each piece. */
class Scores {
  constructor({ rows, columns, right, below }, places, { weight, floor }) {
    const n = rows * columns;
    Object.assign(this, { rows, columns, n });
    this.at = places.map((x) => weight * Math.max(x, 2 * floor));
    const beside = ([after, before]) => {
      const table = new Float64Array((n + 1) * (n + 1));
      const forward = (i, j) => Math.max(after[i * (n + 1) + j], floor);
      const backward = (i, j) => Math.max(before[i * (n + 1) + j], floor);
      for (let i = 0; i < n; i++) {
        for (let j = 0; j < n; j++) table[i * (n + 1) + j] = forward(i, j) + backward(j, i);
        table[i * (n + 1) + n] = forward(i, n);
        table[n * (n + 1) + i] = backward(i, n);
      }
      return table;
    };
    this.right = beside(right);
    this.below = beside(below);
  }

  /** The score of a piece at a slot with the neighbours that are there; piece n is none. */
  gain(board, piece, slot) {
    const { rows, columns, n, right, below } = this;
    const m = n + 1;
    const row = Math.floor(slot / columns);
    const column = slot % columns;
    const left = column ? board[slot - 1] : n;
    const next = column + 1 < columns ? board[slot + 1] : n;
    const above = row ? board[slot - columns] : n;
    const under = row + 1 < rows ? board[slot + columns] : n;
    return right[left * m + piece] + right[piece * m + next] + below[above * m + piece] + below[piece * m + under]
      + this.at[piece * n + slot];
  }

  /** Assign the pieces of slots that do not touch, and exchange two that do, until nothing improves. */
  polish(board) {
    const slots = board.map((_, slot) => slot);
    const parity = (slot) => (Math.floor(slot / this.columns) + (slot % this.columns)) % 2;
    const halves = [0, 1].map((half) => slots.filter((slot) => parity(slot) === half));
    for (let tries = 0; tries < 100; tries++) {
      const changed = halves.map((half) => this.reassign(board, half)).some(Boolean);
      if (!changed && !this.swap(board)) return;
    }
  }

  reassign(board, slots) {
    const held = slots.map((slot) => board[slot]);
    const values = held.map((piece) => slots.map((slot) => this.gain(board, piece, slot)));
    const now = values.reduce((sum, row, i) => sum + row[i], 0);
    const column = bestAssignment(slots.length, (i, j) => values[i][j]);
    if (column.reduce((sum, j, i) => sum + values[i][j], 0) <= now + 1e-9) return false;
    column.forEach((j, i) => (board[slots[j]] = held[i]));
    return true;
  }

  swap(board) {
    const pair = (a, b) => this.gain(board, board[a], a) + this.gain(board, board[b], b);
    for (let slot = 0; slot < this.n; slot++) {
      for (const step of [1, this.columns]) {
        const other = slot + step;
        if (other >= this.n || (step === 1 && other % this.columns === 0)) continue;
        // The border between the two is counted twice, before and after.
        const [a, b] = [board[slot], board[other]];
        const table = step === 1 ? this.right : this.below;
        const before = pair(slot, other) - table[a * (this.n + 1) + b];
        [board[slot], board[other]] = [b, a];
        if (pair(slot, other) - table[b * (this.n + 1) + a] > before + 1e-9) return true;
        [board[slot], board[other]] = [a, b];
      }
    }
    return false;
  }
}

/**
 * Piece by piece, the surest first: each takes its slot, and the others are told that it is taken.
 * Gives {piece, slot, probability} in the order of revealing.
 */
export function* reveal(places, n) {
  const pieces = new Set(Array.from({ length: n }, (_, i) => i));
  const free = new Set(pieces);
  while (pieces.size) {
    let best = { probability: -1 };
    for (const piece of pieces) {
      let total = 0;
      let slot = -1;
      for (const at of free) {
        const p = Math.exp(places[piece * n + at]);
        total += p;
        if (slot < 0 || p > Math.exp(places[piece * n + slot])) slot = at;
      }
      const probability = total > 0 ? Math.exp(places[piece * n + slot]) / total : 1 / free.size;
      if (probability > best.probability) best = { piece, slot, probability };
    }
    pieces.delete(best.piece);
    free.delete(best.slot);
    yield best;
  }
}
