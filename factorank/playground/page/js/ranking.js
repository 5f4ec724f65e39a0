// Scores from votes (Plackett-Luce) or battles (Davidson), and what they say for certain about ranks.
// The same estimates as the library's PlackettLuce.fit and Leaderboard.fit, with which the tests compare them.

import { randomFrom } from "./codes.js";

const WEAK_PRIOR = 0.1;
const DRAWS = 4000;

/** Rows of a leaderboard, best first. */
export function leaderboard(data, { unranked = "incomparable", level = 0.95 } = {}) {
  const n = data.items.length;
  const sure = connected(n, beats(data, unranked));
  const penalty = sure ? 0 : WEAK_PRIOR;
  const fit = data.kind === "votes" ? plackettLuce(data.votes, n, unranked, penalty) : davidson(data.pairs, n, penalty);
  const errors = normal(fit.covariance, DRAWS);
  const [own, together] = [marginalSets(fit.scores, errors, level), simultaneousSets(fit.scores, errors, level)];
  const order = fit.scores.map((_, i) => i).sort((a, b) => fit.scores[b] - fit.scores[a] || a - b);
  const tier = tiers(order, together.above);
  const ranks = rankShares(fit.scores, errors);
  const z = 1.959963984540054;
  const rows = order.map((item) => {
    const error = z * Math.sqrt(Math.max(fit.covariance[item][item], 0));
    return {
      item: data.items[item],
      score: fit.scores[item],
      low: fit.scores[item] - error,
      high: fit.scores[item] + error,
      rank: [own.low[item], own.high[item]],
      together: [together.low[item], together.high[item]],
      best: ranks[item][0],
      tier: tier[item],
      ranks: ranks[item],
    };
  });
  return { rows, level, prior: penalty };
}

/** Who beat whom at least once. */
function beats(data, unranked) {
  const edges = data.items.map(() => new Set());
  if (data.kind === "battles") {
    for (const { a, b, counts } of data.pairs) {
      if (counts[0] + counts[2] > 0) edges[a].add(b);
      if (counts[1] + counts[2] > 0) edges[b].add(a);
    }
    return edges;
  }
  for (const { order } of data.votes) {
    const rest = unranked === "below" ? data.items.map((_, i) => i).filter((i) => !order.includes(i)) : [];
    order.forEach((item, place) => [...order.slice(place + 1), ...rest].forEach((other) => edges[item].add(other)));
  }
  return edges;
}

/** Whether every item reaches every other: exactly then the likelihood has a maximum. */
function connected(n, edges) {
  const reaches = (next) => {
    const seen = new Set([0]);
    const waiting = [0];
    while (waiting.length) for (const other of next(waiting.pop())) if (!seen.has(other)) (seen.add(other), waiting.push(other));
    return seen.size === n;
  };
  const backward = edges.map((_, i) => edges.flatMap((to, j) => (to.has(i) ? [j] : [])));
  return reaches((i) => edges[i]) && reaches((i) => backward[i]);
}

function plackettLuce(votes, n, unranked, penalty) {
  const all = Array.from({ length: n }, (_, i) => i);
  const likelihood = (theta) => {
    let value = 0;
    const gradient = new Float64Array(n);
    const information = zeros(n);
    for (const { order, count } of votes) {
      const left = unranked === "below" ? new Set(all) : new Set(order);
      for (const item of order) {
        if (left.size < 2) break;
        const members = [...left];
        const top = Math.max(...members.map((i) => theta[i]));
        const weights = members.map((i) => Math.exp(theta[i] - top));
        const total = weights.reduce((a, b) => a + b, 0);
        value += count * (theta[item] - top - Math.log(total));
        gradient[item] += count;
        members.forEach((i, a) => {
          const p = weights[a] / total;
          gradient[i] -= count * p;
          information[i][i] += count * p;
          members.forEach((j, b) => (information[i][j] -= (count * p * weights[b]) / total));
        });
        left.delete(item);
      }
    }
    return { value, gradient, information };
  };
  return newton(likelihood, n, n, penalty);
}

/** Win, loss and tie in the proportion exp(d/2) : exp(-d/2) : exp(t); without ties, Bradley and Terry's. */
function davidson(pairs, n, penalty) {
  const ties = pairs.some(({ counts }) => counts[2] > 0);
  const size = n + (ties ? 1 : 0);
  const likelihood = (theta) => {
    let value = 0;
    const gradient = new Float64Array(size);
    const information = zeros(size);
    for (const { a, b, counts } of pairs) {
      const d = theta[a] - theta[b];
      const logits = [d / 2, -d / 2, ties ? theta[n] : -Infinity];
      const top = Math.max(...logits);
      const total = top + Math.log(logits.reduce((sum, x) => sum + Math.exp(x - top), 0));
      const p = logits.map((x) => Math.exp(x - total));
      const battles = counts[0] + counts[1] + counts[2];
      const mean = (p[0] - p[1]) / 2;
      const spread = (p[0] + p[1]) / 4 - mean * mean;
      counts.forEach((c, k) => c && (value += c * (logits[k] - total)));
      const slope = (counts[0] - counts[1]) / 2 - battles * mean;
      gradient[a] += slope;
      gradient[b] -= slope;
      information[a][a] += battles * spread;
      information[b][b] += battles * spread;
      information[a][b] -= battles * spread;
      information[b][a] -= battles * spread;
      if (!ties) continue;
      gradient[n] += counts[2] - battles * p[2];
      information[n][n] += battles * p[2] * (1 - p[2]);
      for (const [item, sign] of [[a, -1], [b, 1]]) {
        information[item][n] += sign * battles * mean * p[2];
        information[n][item] += sign * battles * mean * p[2];
      }
    }
    return { value, gradient, information };
  };
  return newton(likelihood, n, size, penalty);
}

/** The maximum of a concave likelihood of scores (and one parameter more), and the covariance of the scores. */
function newton(likelihood, n, size, penalty) {
  let theta = new Float64Array(size);
  const penalised = (at) => {
    const result = likelihood(at);
    for (let i = 0; i < n; i++) {
      result.value -= (penalty / 2) * at[i] ** 2;
      result.gradient[i] -= penalty * at[i];
      result.information[i][i] += penalty;
    }
    return result;
  };
  // Adding a constant to all scores changes nothing: that direction is given a curvature of its own.
  const gauged = (information) => {
    const scale = Math.max(information.reduce((sum, row, i) => sum + row[i], 0) / size, 1e-300);
    return information.map((row, i) => row.map((x, j) => x + (i < n && j < n ? scale / n : 0)));
  };
  let now = penalised(theta);
  for (let i = 0; i < 100; i++) {
    const inverse = inverted(gauged(now.information));
    const step = inverse.map((row) => row.reduce((sum, x, j) => sum + x * now.gradient[j], 0));
    let length = 1;
    let next;
    do {
      next = penalised(theta.map((x, j) => x + length * step[j]));
      length /= 2;
    } while (next.value < now.value - 1e-12 && length > 1e-9);
    theta = theta.map((x, j) => x + 2 * length * step[j]);
    now = next;
    if (Math.max(...step.map(Math.abs)) < 1e-10) break;
  }
  const mean = theta.slice(0, n).reduce((a, b) => a + b, 0) / n;
  const whole = inverted(gauged(now.information)).slice(0, n).map((row) => row.slice(0, n));
  const rows = whole.map((row) => row.reduce((a, b) => a + b, 0) / n);
  const grand = rows.reduce((a, b) => a + b, 0) / n;
  return {
    scores: Array.from(theta.slice(0, n), (x) => x - mean),
    covariance: whole.map((row, i) => row.map((x, j) => x - rows[i] - rows[j] + grand)),
  };
}

const zeros = (n) => Array.from({ length: n }, () => new Array(n).fill(0));

/** The inverse by elimination with pivots. */
function inverted(matrix) {
  const n = matrix.length;
  const work = matrix.map((row, i) => [...row, ...row.map((_, j) => (i === j ? 1 : 0))]);
  for (let i = 0; i < n; i++) {
    let pivot = i;
    for (let k = i + 1; k < n; k++) if (Math.abs(work[k][i]) > Math.abs(work[pivot][i])) pivot = k;
    [work[i], work[pivot]] = [work[pivot], work[i]];
    const lead = work[i][i];
    for (let j = 0; j < 2 * n; j++) work[i][j] /= lead;
    for (let k = 0; k < n; k++) {
      const factor = work[k][i];
      if (k === i || !factor) continue;
      for (let j = 0; j < 2 * n; j++) work[k][j] -= factor * work[i][j];
    }
  }
  return work.map((row) => row.slice(n));
}

/** Draws of normal errors with a covariance that may be singular. */
function normal(covariance, draws) {
  const n = covariance.length;
  const root = zeros(n);
  for (let i = 0; i < n; i++) {
    for (let j = 0; j <= i; j++) {
      let sum = covariance[i][j];
      for (let k = 0; k < j; k++) sum -= root[i][k] * root[j][k];
      if (i === j) root[i][i] = sum > 1e-14 ? Math.sqrt(sum) : 0;
      else root[i][j] = root[j][j] > 0 ? sum / root[j][j] : 0;
    }
  }
  const random = randomFrom(1);
  const gauss = () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
  return Array.from({ length: draws }, () => {
    const noise = Array.from({ length: n }, gauss);
    return root.map((row, i) => row.reduce((sum, x, k) => (k <= i ? sum + x * noise[k] : sum), 0));
  });
}

/** Studentised differences of the scores, and what they are divided by. */
function statistics(scores, errors) {
  const n = scores.length;
  const mean = scores.map((_, i) => errors.reduce((sum, row) => sum + row[i], 0) / errors.length);
  const spread = zeros(n);
  for (const row of errors) {
    for (let i = 0; i < n; i++) for (let j = 0; j < i; j++) spread[i][j] += (row[i] - mean[i] - row[j] + mean[j]) ** 2;
  }
  for (let i = 0; i < n; i++) {
    spread[i][i] = 1;
    for (let j = 0; j < i; j++) spread[i][j] = spread[j][i] = Math.max(Math.sqrt(spread[i][j] / (errors.length - 1)), 1e-150);
  }
  return { t: scores.map((x, i) => scores.map((y, j) => (x - y) / spread[i][j])), spread };
}

const grid = (n, value) => Array.from({ length: n }, (_, i) => Array.from({ length: n }, (_, j) => value(i, j)));

function quantile(values, level) {
  const sorted = Float64Array.from(values).sort();
  const at = sorted[Math.min(Math.ceil(level * (values.length + 1)) - 1, values.length - 1)];
  return at === -Infinity ? Infinity : at;
}

/** For each item a set that holds its rank with probability `level`, each by itself (step-down tests). */
function marginalSets(scores, errors, level) {
  const n = scores.length;
  const { t, spread } = statistics(scores, errors);
  const [above, below] = [grid(n, () => false), grid(n, () => false)];
  for (let changed = true; changed; ) {
    changed = false;
    for (let j = 0; j < n; j++) {
      const largest = errors.map((row) => {
        let most = -Infinity;
        for (let k = 0; k < n; k++) {
          if (k === j) continue;
          const x = (row[j] - row[k]) / spread[j][k];
          if (!above[j][k] && x > most) most = x;
          if (!below[j][k] && -x > most) most = -x;
        }
        return most;
      });
      const critical = quantile(largest, level);
      for (let k = 0; k < n; k++) {
        if (k === j) continue;
        if (!above[j][k] && t[j][k] > critical) changed = above[j][k] = true;
        if (!below[j][k] && -t[j][k] > critical) changed = below[j][k] = true;
      }
    }
  }
  const sum = (row) => row.filter(Boolean).length;
  return { low: below.map((row) => 1 + sum(row)), high: above.map((row) => n - sum(row)) };
}

/** Sets that hold the ranks of all items together with probability `level`. */
function simultaneousSets(scores, errors, level) {
  const n = scores.length;
  const { t, spread } = statistics(scores, errors);
  const above = grid(n, () => false);
  for (let changed = true; changed; ) {
    changed = false;
    const largest = errors.map((row) => {
      let most = -Infinity;
      for (let j = 0; j < n; j++) for (let k = 0; k < n; k++) if (k !== j && !above[j][k]) most = Math.max(most, (row[j] - row[k]) / spread[j][k]);
      return most;
    });
    const critical = quantile(largest, level);
    for (let j = 0; j < n; j++) for (let k = 0; k < n; k++) if (k !== j && !above[j][k] && t[j][k] > critical) changed = above[j][k] = true;
  }
  const column = (k) => above.filter((row) => row[k]).length;
  return { low: scores.map((_, k) => 1 + column(k)), high: above.map((row) => n - row.filter(Boolean).length), above };
}

/** A tier begins at the first item that is certainly below the leader of the tier before. */
function tiers(order, above) {
  const result = new Array(order.length);
  let [leader, tier] = [order[0], 1];
  for (const item of order) {
    if (above[leader][item]) [leader, tier] = [item, tier + 1];
    result[item] = tier;
  }
  return result;
}

/** The share of the draws at which each item has each rank. */
function rankShares(scores, errors) {
  const shares = zeros(scores.length);
  for (const row of errors) {
    const order = row.map((error, i) => [scores[i] + error, i]).sort((a, b) => b[0] - a[0]);
    order.forEach(([, item], rank) => (shares[item][rank] += 1 / errors.length));
  }
  return shares;
}
