// The law of the orders of some letters: the masked model reveals a code from one end to the other.
// A beginning is a list of values in the order of revealing, the certain value of position 0 first.

import { codeOf } from "./codes.js";
import { facts, model } from "./runtime.js";

const LETTERS = "abcdefghijklmnopqrstuvwxyz";
const MOST_ROWS = 256; // evaluated together

export class Letters {
  static async load() {
    const [{ letters }, run] = await Promise.all([facts, model("letters")]);
    return new Letters(letters, run);
  }

  constructor({ longest, shortest, code, alphabetical, unmask }, run) {
    Object.assign(this, { longest, shortest, alphabetical, unmask, run, code: codeOf(code) });
  }

  /** A law over the orders of the letters, at so many evaluations. */
  law(letters, nfe) {
    return new Law(this, this.alphabetical ? [...letters].sort().join("") : letters, nfe);
  }
}

/** Blocks of a listing that begins at 1; sizes differ by at most one, the larger first. */
export function blocks(free, nfe) {
  const count = Math.min(nfe, free);
  const least = Math.floor(free / count);
  const result = [];
  let start = 1; // the value of position 0 is always 0
  for (let i = 0; i < count; i++) {
    const size = least + (i < free % count);
    result.push([start, start + size]);
    start += size;
  }
  return result;
}

class Law {
  constructor(model, letters, nfe) {
    Object.assign(this, { model, letters, n: letters.length });
    this.blocks = blocks(this.n - 1, nfe);
    const free = Array.from({ length: this.n - 1 }, (_, i) => i + 1);
    this.positions = [0, ...(model.unmask === "right-to-left" ? free.reverse() : free)];
    this.identity = model.code.encode(Array.from({ length: this.n }, (_, i) => i));
    this.known = new Map(); // log-probabilities after each revealed beginning
  }

  /** Log-probabilities of the values of the next block, after some beginnings of codes: kept for later. */
  async #evaluate(beginnings) {
    const missing = [...new Set(beginnings.map(String))].filter((key) => !this.known.has(key));
    for (let start = 0; start < missing.length; start += MOST_ROWS) await this.#rows(missing.slice(start, start + MOST_ROWS));
  }

  async #rows(keys) {
    const { longest } = this.model;
    // One row more than needed at the least: a batch of one is another shape to some graphs.
    const context = new BigInt64Array(keys.length * longest);
    const code = new BigInt64Array(keys.length * longest);
    keys.forEach((key, row) => {
      const beginning = key === "" ? [] : key.split(",").map(Number);
      const known = this.placed(beginning);
      for (let i = 0; i < longest; i++) {
        context[row * longest + i] = BigInt(i < this.n ? LETTERS.indexOf(this.letters[i]) : -1);
        code[row * longest + i] = BigInt(i < this.n ? (known[i] ?? -1) : i);
      }
    });
    const dims = [keys.length, longest];
    const { logits } = await this.model.run({ letters: { type: "int64", data: context, dims }, code: { type: "int64", data: code, dims } });
    const values = logits.dims.at(-1);
    keys.forEach((key, row) => {
      const from = key === "" ? 1 : key.split(",").length;
      const [, to] = this.blocks.find(([start]) => start === from);
      const table = [];
      for (const i of this.positions.slice(from, to)) {
        const line = Array.from(logits.data.subarray((row * longest + i) * values, (row * longest + i) * values + i + 1));
        const top = Math.max(...line);
        const total = top + Math.log(line.reduce((sum, x) => sum + Math.exp(x - top), 0));
        table.push(line.map((x) => x - total));
      }
      this.known.set(key, table);
    });
  }

  /** Draw codes, block by block: {word, steps}, steps being the codes as they are revealed. */
  async sample(count, random = Math.random) {
    const draws = Array.from({ length: count }, () => ({ code: [], steps: [[]] }));
    for (const [start, stop] of this.blocks) {
      await this.#evaluate(draws.map(({ code }) => code));
      for (const draw of draws) {
        const table = this.known.get(String(draw.code));
        if (!draw.code.length) draw.code = [0];
        const next = [];
        for (let i = start; i < stop; i++) {
          let rest = random();
          let value = 0;
          const line = table[i - start];
          while (value < this.positions[i] && (rest -= Math.exp(line[value])) > 0) value++;
          next.push(value);
        }
        draw.code = [...draw.code, ...next];
        draw.steps.push(draw.code);
      }
    }
    return draws.map(({ code, steps }) => ({ word: this.spell(code), steps }));
  }

  /** The values of a beginning at their positions; nothing where they are not revealed. */
  placed(beginning) {
    const code = new Array(this.n);
    beginning.forEach((value, i) => (code[this.positions[i]] = value));
    return code;
  }

  /** The order that a beginning stands for: what is not revealed is as in the order of the letters. */
  order(beginning) {
    const code = this.placed(beginning);
    return this.model.code.decode(this.identity.map((value, i) => code[i] ?? value));
  }

  spell(beginning) {
    return this.order(beginning).map((item) => this.letters[item]).join("");
  }

  /** The exact probability of each word, summed over the orders that spell it. */
  async probabilities(words) {
    const listed = words.flatMap((word, number) => spellings(word, this.letters).map((order) => [number, this.model.code.encode(order)]));
    const sums = new Float64Array(words.length);
    const logs = new Float64Array(listed.length);
    for (const [start, stop] of this.blocks) {
      const known = start === 1 ? [] : this.positions.slice(0, start);
      const beginnings = listed.map(([, code]) => known.map((i) => code[i]));
      await this.#evaluate(beginnings);
      listed.forEach(([, code], row) => {
        const table = this.known.get(String(beginnings[row]));
        for (let i = start; i < stop; i++) logs[row] += table[i - start][code[this.positions[i]]];
      });
    }
    listed.forEach(([number], row) => (sums[number] += Math.exp(logs[row])));
    return Array.from(sums);
  }
}

/** How many orders of the letters spell each word: several where a letter comes twice. */
export function ordersOf(letters) {
  const counts = new Map();
  return [...letters].reduce((orders, letter) => {
    counts.set(letter, (counts.get(letter) ?? 0) + 1);
    return orders * counts.get(letter);
  }, 1);
}

/** All orders of the letters that spell a word. */
export function spellings(word, letters) {
  let all = [[]];
  for (const wanted of word) {
    all = all.flatMap((order) => [...letters].flatMap((letter, item) => (letter === wanted && !order.includes(item) ? [[...order, item]] : [])));
  }
  return all;
}

/** Words by their letters in alphabetical order. */
export function anagrams(words) {
  const sets = new Map();
  for (const word of words) {
    const key = [...word].sort().join("");
    sets.set(key, [...(sets.get(key) ?? []), word]);
  }
  return (letters) => sets.get([...letters].sort().join("")) ?? [];
}
