// Votes and battles from text, or the leaderboard that the library wrote into a page.

const COLUMNS = { a: ["model_a", "a", "left"], b: ["model_b", "b", "right"], winner: ["winner", "outcome"], count: ["count", "weight"] };
const FIRST = ["model_a", "a", "left", "1"];
const SECOND = ["model_b", "b", "right", "2"];
const TIE = ["tie", "draw", "equal", "both"];
const OF_TABLES = /^(counts?|weights?|voters?|user|id|item|candidate|rank|score|winner|loser|(place|rank|position|choice) ?\d*|\d+(st|nd|rd|th)|(first|second|third)( choice)?)$/;

/** {kind: "votes", items, votes: [{order, count}]} or {kind: "battles", items, pairs: [{a, b, counts}]}. */
export function parse(text) {
  const lines = text.split(/\r?\n/).map((line, i) => [line.trim(), i + 1]).filter(([line]) => line && !line.startsWith("#"));
  if (!lines.length) throw new Error("There is nothing to rank yet.");
  const cells = lines[0][0].split(/[,;\t]/).map((cell) => cell.trim().toLowerCase());
  const named = Object.fromEntries(Object.entries(COLUMNS).map(([what, names]) => [what, cells.findIndex((cell) => names.includes(cell))]));
  if (named.a >= 0 && named.b >= 0 && named.winner >= 0) return battles(lines.slice(1), named);
  const loser = cells.indexOf("loser");
  if (named.winner >= 0 && loser >= 0) return battles(lines.slice(1), { ...named, a: named.winner, b: loser });
  if (cells.length > 1 && cells.every((cell) => OF_TABLES.test(cell))) {
    throw new Error('These are the columns of a table. A vote here is a line, "apple > pear > plum"; factorank fit reads tables.');
  }
  return votes(lines);
}

function votes(lines) {
  const names = new Map();
  const number = (name) => names.get(name) ?? (names.set(name, names.size), names.size - 1);
  const all = lines.map(([line, at]) => {
    const [, count, rest] = line.match(/^(?:([-+]?[\d.]+)\s*:)?\s*(.*)$/);
    if (count !== undefined && !(Number(count) >= 0)) throw new Error(`Line ${at}: a count is a number from 0.`);
    if (/[={]/.test(rest)) throw new Error(`Line ${at}: votes here have no ties; write battles for those.`);
    const listed = rest.split(/\s*(?:>|,)\s*/).filter(Boolean);
    if (count === undefined && !rest.includes(">") && listed.every((name) => !isNaN(name))) {
      throw new Error(`Line ${at}: these numbers may be items or ranks. An order of items is written "2 > 1 > 3"; factorank fit reads tables of ranks.`);
    }
    const order = listed.map(number);
    if (order.length < 2) throw new Error(`Line ${at}: a vote is like "apple > pear > plum", with a count before it if you like: "3: …".`);
    if (new Set(order).size < order.length) throw new Error(`Line ${at}: an item comes twice.`);
    return { order, count: Number(count ?? 1) };
  });
  return { kind: "votes", items: [...names.keys()], votes: all };
}

function battles(lines, named) {
  const names = new Set();
  const rows = lines.map(([line, at]) => {
    const cells = line.split(/[,;\t]/).map((cell) => cell.trim());
    const [a, b, winner] = ["a", "b", "winner"].map((what) => cells[named[what]] ?? "");
    if (!a || !b || a === b) throw new Error(`Line ${at}: a battle is between two items.`);
    const word = winner.toLowerCase();
    const outcome = winner === a ? 0 : winner === b ? 1 : FIRST.includes(word) ? 0 : SECOND.includes(word) ? 1 : TIE.some((tie) => word.startsWith(tie)) ? 2 : -1;
    if (outcome < 0) throw new Error(`Line ${at}: the winner is model_a, model_b, tie or a name, not "${winner}".`);
    const count = named.count >= 0 ? Number(cells[named.count]) : 1;
    if (!(count >= 0)) throw new Error(`Line ${at}: a count is a number from 0.`);
    names.add(a).add(b);
    return { a, b, outcome, count };
  });
  if (!rows.length) throw new Error("There are no battles below the names of the columns.");
  const items = [...names].sort((x, y) => (x < y ? -1 : 1));
  const pairs = new Map();
  for (const { a, b, outcome, count } of rows) {
    const [i, j] = [items.indexOf(a), items.indexOf(b)];
    const key = i < j ? `${i},${j}` : `${j},${i}`;
    const pair = pairs.get(key) ?? { a: Math.min(i, j), b: Math.max(i, j), counts: [0, 0, 0] };
    pair.counts[outcome === 2 ? 2 : i < j ? outcome : 1 - outcome] += count;
    pairs.set(key, pair);
  }
  return { kind: "battles", items, pairs: [...pairs.values()] };
}

/** The table inside a page that `factorank leaderboard --html` wrote, as rows; null for any other page. */
export function fromPage(html) {
  const data = html.match(/<script type="application\/json" id="data">([^<]*)<\/script>/);
  if (!data) return null;
  const { table, level, about } = JSON.parse(data[1]);
  const rows = table.item.map((item, i) => ({
    item,
    score: table.score[i],
    low: table.low[i],
    high: table.high[i],
    rank: [table.rank_low[i], table.rank_high[i]],
    together: [table.rank_low_simultaneous[i], table.rank_high_simultaneous[i]],
    best: table.p_best[i],
    tier: table.tier[i],
    ranks: null,
  }));
  return { rows, level, about };
}
