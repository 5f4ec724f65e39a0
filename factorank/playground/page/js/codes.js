// Orders and their codes, as the library defines them: 0-based, order[i] is the item at place i.

export const inverse = (order) => {
  const rank = new Array(order.length);
  order.forEach((item, place) => (rank[item] = place));
  return rank;
};

const count = (length, holds) => Array.from({ length }, (_, j) => holds(j)).filter(Boolean).length;

/** The position of the k-th item that is left, taken out of a list. */
const take = (left, k) => left.splice(k, 1)[0];

const lehmer = {
  name: "lehmer",
  title: "Lehmer",
  says: "the index of the item at place i among those still left",
  sizes: (n) => Array.from({ length: n }, (_, i) => n - i),
  encode: (x) => x.map((item, i) => count(x.length, (j) => j > i && x[j] < item)),
  decode: (code) => {
    const left = code.map((_, i) => i);
    return code.map((k) => take(left, k));
  },
};

const leftLehmer = {
  name: "left-lehmer",
  title: "Left Lehmer",
  says: "how many larger items stand before place i",
  sizes: (n) => Array.from({ length: n }, (_, i) => i + 1),
  encode: (x) => x.map((item, i) => count(i, (j) => x[j] > item)),
  decode: (code) => {
    // From the last place on: its item is the (value)-th largest of those that are left.
    const left = code.map((_, i) => i);
    const order = new Array(code.length);
    for (let i = code.length - 1; i >= 0; i--) order[i] = take(left, i - code[i]);
    return order;
  },
};

const fisherYates = {
  name: "fisher-yates",
  title: "Fisher–Yates",
  says: "how many places further to swap place i",
  sizes: (n) => Array.from({ length: n }, (_, i) => n - i),
  encode: (x) => {
    const held = x.map((_, i) => i);
    return x.map((item, i) => {
      const j = held.indexOf(item);
      held[j] = held[i];
      held[i] = item;
      return j - i;
    });
  },
  decode: (draws) => {
    const order = draws.map((_, i) => i);
    draws.forEach((draw, i) => ([order[i], order[i + draw]] = [order[i + draw], order[i]]));
    return order;
  },
};

const insertion = {
  name: "insertion",
  title: "Insertion",
  says: "the slot where item i goes among items 0 … i−1",
  sizes: (n) => Array.from({ length: n }, (_, i) => i + 1),
  encode: (x) => {
    const rank = inverse(x);
    return rank.map((place, item) => count(item, (other) => rank[other] < place));
  },
  decode: (code) => {
    const order = [];
    code.forEach((slot, item) => order.splice(slot, 0, item));
    return order;
  },
};

export const CODES = [lehmer, leftLehmer, insertion, fisherYates];
export const codeOf = (name) => CODES.find((code) => code.name === name);

/** The cycles of i → order[i], each from its smallest item. */
export function cycles(order) {
  const seen = new Set();
  const all = [];
  for (let start = 0; start < order.length; start++) {
    if (seen.has(start)) continue;
    const cycle = [];
    for (let at = start; !seen.has(at); at = order[at]) {
      seen.add(at);
      cycle.push(at);
    }
    all.push(cycle);
  }
  return all;
}

/** Numbers from a seed, uniform on [0, 1): the same on every machine. */
export function randomFrom(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/** A uniform order of n items. */
export function randomOrder(n, random = Math.random) {
  return fisherYates.decode(fisherYates.sizes(n).map((size) => Math.floor(size * random())));
}
