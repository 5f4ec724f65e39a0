// One order for many votes.

const EXACT = 13; // items up to which all subsets are searched

/** preferred[i][j]: the weight of the votes that place i above j. */
export function preferences(data, unranked) {
  const n = data.items.length;
  const preferred = Array.from({ length: n }, () => new Array(n).fill(0));
  for (const { order, count } of data.votes) {
    const rest = unranked === "below" ? data.items.map((_, i) => i).filter((i) => !order.includes(i)) : [];
    order.forEach((item, place) => [...order.slice(place + 1), ...rest].forEach((other) => (preferred[item][other] += count)));
  }
  return preferred;
}

const byScore = (scores) => scores.map((_, i) => i).sort((a, b) => scores[b] - scores[a] || a - b);

export const borda = (preferred) => byScore(preferred.map((row, i) => row.reduce((sum, x, j) => sum + x - preferred[j][i], 0)));

export const copeland = (preferred) =>
  byScore(preferred.map((row, i) => row.reduce((sum, x, j) => sum + (x > preferred[j][i] ? 1 : x < preferred[j][i] ? -1 : 0), 0)));

/** The order that disagrees with the votes on the fewest pairs: proven for few items, searched beyond. */
export function kemeny(preferred) {
  const n = preferred.length;
  if (n > EXACT) return { order: climbed(preferred, borda(preferred)), proven: false };
  // The least disagreement of each set of items at the top, and who stands last in it.
  const size = 1 << n;
  const least = new Float64Array(size).fill(Infinity);
  const last = new Int8Array(size);
  least[0] = 0;
  for (let set = 1; set < size; set++) {
    for (let item = 0; item < n; item++) {
      if (!(set & (1 << item))) continue;
      const before = set ^ (1 << item);
      let cost = least[before];
      for (let other = 0; other < n; other++) if (before & (1 << other)) cost += preferred[item][other];
      if (cost < least[set]) [least[set], last[set]] = [cost, item];
    }
  }
  const order = [];
  for (let set = size - 1; set; set ^= 1 << last[set]) order.unshift(last[set]);
  return { order, proven: true };
}

/** Take out items and put them where they disagree least, as long as that helps. */
function climbed(preferred, start) {
  const order = [...start];
  for (let changed = true; changed; ) {
    changed = false;
    for (const item of [...order]) {
      const from = order.indexOf(item);
      let [best, to, sum] = [0, from, 0];
      for (let i = from - 1; i >= 0; i--) {
        sum += preferred[item][order[i]] - preferred[order[i]][item];
        if (sum > best + 1e-9) [best, to] = [sum, i];
      }
      sum = 0;
      for (let i = from + 1; i < order.length; i++) {
        sum += preferred[order[i]][item] - preferred[item][order[i]];
        if (sum > best + 1e-9) [best, to] = [sum, i];
      }
      if (to !== from) {
        order.splice(to, 0, ...order.splice(from, 1));
        changed = true;
      }
    }
  }
  return order;
}
