// Rankings: votes or battles are pasted; scores, the ranks that are certain, and a consensus come out.

import { borda, copeland, kemeny, preferences } from "./consensus.js";
import { el, percent, pills, svg } from "./dom.js";
import { leaderboard } from "./ranking.js";
import { fromPage, parse } from "./ranking-data.js";

const EXAMPLES = {
  "Votes": `# a count, then an order, best first
18: Amsterdam > Lisbon > Vienna > Oslo > Porto
12: Lisbon > Porto > Amsterdam > Vienna > Oslo
10: Vienna > Amsterdam > Oslo > Lisbon > Porto
9: Oslo > Vienna > Amsterdam > Lisbon > Porto
7: Porto > Lisbon > Vienna > Amsterdam > Oslo
4: Lisbon > Amsterdam > Porto > Oslo > Vienna`,
  "Top choices": `# only the favourites were named
21: coffee > tea
14: tea > water > juice
9: juice > coffee
8: water > tea > coffee
5: cocoa > coffee > juice
3: juice > cocoa`,
  "Battles": `model_a,model_b,winner,count
maple,cedar,maple,31
maple,cedar,cedar,22
maple,cedar,tie,9
maple,birch,maple,40
maple,birch,birch,18
maple,birch,tie,6
cedar,birch,cedar,33
cedar,birch,birch,27
cedar,birch,tie,11
birch,willow,birch,35
birch,willow,willow,12
birch,willow,tie,5
cedar,willow,cedar,44
cedar,willow,willow,9
maple,willow,maple,29
maple,willow,willow,4
aspen,willow,aspen,15
aspen,willow,willow,14
aspen,willow,tie,8
aspen,birch,aspen,9
aspen,birch,birch,16`,
};

export function rankingTab(panel) {
  const state = { unranked: "incomparable" };
  const area = el("textarea", { id: "data", rows: 11, spellcheck: "false", wrap: "off", "aria-describedby": "data-help" });
  const status = el("p", { class: "status", role: "status" });
  const table = el("div", { class: "board-table" });
  const orders = el("div", { class: "orders" });
  const left = el("div");
  const file = el("input", { type: "file", id: "file", accept: ".csv,.txt,.html,.tsv", class: "hidden-input" });
  let timer;

  panel.append(
    el("div", { class: "lede" },
      el("h2", {}, "Ranking"),
      el("p", {}, "Paste votes or battles. A rank is an estimate like any other: see which places each item can hold, and who is really ahead of whom."),
    ),
    el("div", { class: "columns ranking" },
      el("div", { class: "card" },
        el("div", { class: "examples" }, Object.keys(EXAMPLES).map((name) =>
          el("button", { type: "button", class: "chip", onclick: () => fill(EXAMPLES[name]) }, name))),
        el("label", { for: "data" }, "Votes or battles"),
        area,
        el("p", { class: "hint", id: "data-help" }, "A vote is a line: 3: apple > pear > plum, the count first. Battles have columns model_a, model_b, winner and perhaps count, or winner, loser."),
        left,
        el("label", { class: "drop", for: "file" }, el("strong", {}, "A file"), el("span", {}, "of votes or battles, or a page of leaderboard --html")),
        file,
      ),
      el("div", { class: "card wide" }, status, table, orders),
    ),
  );

  area.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(update, 250);
  });
  file.addEventListener("change", () => file.files[0] && open(file.files[0]));
  panel.addEventListener("dragover", (event) => event.preventDefault());
  panel.addEventListener("drop", (event) => {
    event.preventDefault();
    if (event.dataTransfer.files[0]) open(event.dataTransfer.files[0]);
  });

  async function open(chosen) {
    const content = await chosen.text();
    if (!/^\s*</.test(content)) return fill(content);
    const board = fromPage(content);
    if (!board) {
      status.textContent = `${chosen.name} is no page that leaderboard --html wrote.`;
      return undefined;
    }
    area.value = ""; // the table is no longer of what was pasted
    left.replaceChildren();
    orders.replaceChildren();
    status.textContent = board.about;
    return show(board);
  }

  function fill(content) {
    area.value = content;
    update();
  }

  function update() {
    let data;
    try {
      data = parse(area.value);
      const some = data.kind === "votes" && data.votes.some(({ order }) => order.length < data.items.length);
      if (!some) left.replaceChildren();
      else if (!left.children.length) {
        left.append(pills("Items that a vote leaves out", "unranked", [["incomparable", "are not compared"], ["below", "are below"]], state.unranked, (value) => {
          state.unranked = value;
          update();
        }));
      }
      const board = leaderboard(data, state);
      const count = data.kind === "votes" ? data.votes.reduce((sum, vote) => sum + vote.count, 0) : data.pairs.reduce((sum, pair) => sum + pair.counts.reduce((a, b) => a + b), 0);
      status.textContent = `${count} ${count === 1 ? data.kind.slice(0, -1) : data.kind} of ${data.items.length} items. Intervals and rank sets at ${100 * board.level}%.`
        + (board.prior ? " Some items never won or never lost: a weak prior settles their scores." : "");
      show(board);
      consensus(data);
      panel.dataset.board = JSON.stringify(board.rows);
    } catch (error) {
      status.textContent = error.message;
      table.replaceChildren();
      orders.replaceChildren();
    }
  }

  function show({ rows }) {
    const [low, high] = [Math.min(...rows.map((row) => row.low)), Math.max(...rows.map((row) => row.high))];
    const span = ([a, b]) => (a === b ? String(a) : `${a}–${b}`);
    const head = ["Rank", "Item", "Score", "Places", "P(best)", "Tier"];
    table.replaceChildren(el("table", {},
      el("thead", {}, el("tr", {}, head.map((name) => el("th", { scope: "col" }, name)))),
      el("tbody", {}, rows.map((row) => {
        const tier = el("span", { class: "tier" }, String(row.tier));
        tier.style.setProperty("--hue", (row.tier * 137 + 100) % 360);
        return el("tr", {},
          el("td", { class: "rank" }, el("b", {}, span(row.rank)), el("small", {}, ` together ${span(row.together)}`)),
          el("th", { scope: "row" }, row.item),
          el("td", {}, interval(row, low, high)),
          el("td", {}, places(row, rows.length)),
          el("td", { class: "number" }, percent(row.best)),
          el("td", {}, tier));
      }))));
  }

  function interval({ score, low, high }, least, most) {
    const at = (x) => 6 + (128 * (x - least)) / (most - least || 1);
    const label = `${score.toFixed(2)}, from ${low.toFixed(2)} to ${high.toFixed(2)}`;
    return svg("svg", { viewBox: "0 0 140 18", class: "interval", role: "img", "aria-label": label },
      svg("line", { x1: at(low), x2: at(high), y1: 9, y2: 9, class: "whisker" }),
      svg("circle", { cx: at(score), cy: 9, r: 5, class: "dot" }));
  }

  /** How likely each place is: one cell a place. */
  function places({ ranks, rank, item }, n) {
    const cells = el("span", { class: "places", role: "img", "aria-label": ranks ? `${item}: ${ranks.map((p, i) => `place ${i + 1} ${percent(p, 0)}`).join(", ")}` : `${item}: places ${rank[0]} to ${rank[1]}` });
    for (let i = 0; i < n; i++) {
      const cell = el("i", { title: ranks ? `place ${i + 1}: ${percent(ranks[i])}` : "" });
      cell.style.setProperty("--p", ranks ? ranks[i] : i + 1 >= rank[0] && i + 1 <= rank[1] ? 0.6 : 0);
      cells.append(cell);
    }
    return cells;
  }

  function consensus(data) {
    if (data.kind !== "votes") return orders.replaceChildren();
    const preferred = preferences(data, state.unranked);
    const best = kemeny(preferred);
    const rules = [
      ["Kemeny", best.order, best.proven ? "fewest pairs against the votes" : "fewest pairs against the votes that a search came to"],
      ["Borda", borda(preferred), "most items beaten over all votes"],
      ["Copeland", copeland(preferred), "most items beaten by a majority"],
    ];
    panel.dataset.consensus = JSON.stringify(Object.fromEntries(rules.map(([name, order]) => [name, order.map((i) => data.items[i])])));
    return orders.replaceChildren(el("h3", {}, "One order for all"),
      el("dl", {}, rules.flatMap(([name, order, why]) => [
        el("dt", {}, name, el("small", {}, ` ${why}`)),
        el("dd", {}, order.map((i) => data.items[i]).join(" › ")),
      ])));
  }

  fill(EXAMPLES.Votes);
}
