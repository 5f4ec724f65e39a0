// The assignment of largest value: rows to columns, exactly (Kuhn's method with potentials).

/** For a square table value(i, j), the column of each row such that the sum is largest. */
export function bestAssignment(n, value) {
  const u = new Float64Array(n + 1);
  const v = new Float64Array(n + 1);
  const row = new Int32Array(n + 1); // the row of each column, from 1; 0 is none
  const way = new Int32Array(n + 1);
  for (let i = 1; i <= n; i++) {
    row[0] = i;
    let at = 0;
    const least = new Float64Array(n + 1).fill(Infinity);
    const used = new Uint8Array(n + 1);
    do {
      used[at] = 1;
      const current = row[at];
      let delta = Infinity;
      let next = 0;
      for (let j = 1; j <= n; j++) {
        if (used[j]) continue;
        const cost = -value(current - 1, j - 1) - u[current] - v[j];
        if (cost < least[j]) {
          least[j] = cost;
          way[j] = at;
        }
        if (least[j] < delta) {
          delta = least[j];
          next = j;
        }
      }
      for (let j = 0; j <= n; j++) {
        if (used[j]) {
          u[row[j]] += delta;
          v[j] -= delta;
        } else {
          least[j] -= delta;
        }
      }
      at = next;
    } while (row[at] !== 0);
    do {
      const before = way[at];
      row[at] = row[before];
      at = before;
    } while (at);
  }
  const column = new Array(n);
  for (let j = 1; j <= n; j++) column[row[j] - 1] = j - 1;
  return column;
}
