// Words: letters are typed; the law over their orders is sampled in the page, with the path of a draw.

import { el, hue, percent, pills, svg } from "./dom.js";
import { text } from "./runtime.js";
import { anagrams, Letters, ordersOf } from "./words.js";

const DRAWS = 400;
const SHOWN = 10;
const MOST_ORDERS = 2000; // of words whose exact probabilities are computed; the others have shares of the draws
const EXAMPLES = ["osftre", "ptso", "aelst", "eilnst", "ranges", "gentrail"];

export async function wordsTab(panel) {
  const state = { letters: "osftre", nfe: null, run: 0 };
  const input = el("input", { id: "letters", type: "text", value: state.letters, autocomplete: "off", autocapitalize: "none", spellcheck: "false", maxlength: 12 });
  const status = el("p", { class: "status", role: "status" }, "Loading the model of letters, six megabytes, once …");
  const choice = el("div");
  const list = el("ol", { class: "words", "aria-label": "Words by probability" });
  const path = el("div", { class: "path" });
  const chart = el("div", { class: "curve" });
  const again = el("button", { type: "button", onclick: () => drawPath() }, "Draw another");

  panel.append(
    el("div", { class: "lede" },
      el("h2", {}, "Words"),
      el("p", {}, "Letters in any order; the model is a law over all their orders. At one evaluation every value of the code is drawn at once; with more, each sees those before it. Watch words appear."),
    ),
    el("div", { class: "card order" },
      el("div", { class: "row" },
        el("div", { class: "field" }, el("label", { for: "letters" }, "Letters"), input),
        choice,
      ),
      el("div", { class: "examples" }, EXAMPLES.map((word) =>
        el("button", { type: "button", class: "chip", onclick: () => { input.value = word; update(); } }, word))),
      status,
    ),
    el("div", { class: "columns even" },
      el("div", { class: "card" }, el("h3", {}, "What it draws"), list),
      el("div", { class: "card" }, el("header", {}, el("h3", {}, "One draw, step by step"), again), path,
        el("h3", {}, "Probability of real words"), chart),
    ),
  );

  let model;
  let listed;
  try {
    [model, listed] = await Promise.all([Letters.load(), text("words.txt").then((words) => anagrams(words.trim().split("\n")))]);
  } catch {
    status.textContent = "The model could not be loaded.";
    return;
  }
  input.maxLength = model.longest;
  input.addEventListener("input", () => update());
  update();

  function update(nfe = null) {
    const letters = input.value.trim().toLowerCase();
    if (!/^[a-z]*$/.test(letters)) return refuse("Letters are a to z.");
    if (letters.length < model.shortest || letters.length > model.longest) {
      return refuse(`Give ${model.shortest} to ${model.longest} letters.`);
    }
    const most = letters.length - 1; // the first value of the code is always 0
    if (letters !== state.letters || nfe === null) {
      state.nfe = most;
      choice.replaceChildren(pills("Evaluations", "nfe", Array.from({ length: most }, (_, i) => [i + 1, String(i + 1)]), most, update));
    } else {
      state.nfe = Number(nfe);
    }
    state.letters = letters;
    show();
    return undefined;
  }

  function refuse(words) {
    state.run++;
    status.textContent = words;
    list.replaceChildren();
    path.replaceChildren();
    chart.replaceChildren();
    choice.replaceChildren();
  }

  async function show() {
    const run = ++state.run;
    const { letters, nfe } = state;
    status.textContent = "Drawing …";
    const law = (state.law = model.law(letters, nfe));
    const draws = await law.sample(DRAWS);
    const real = new Set(listed(letters));
    const shares = new Map([...real].map((word) => [word, 0]));
    for (const { word } of draws) shares.set(word, (shares.get(word) ?? 0) + 1 / DRAWS);
    const words = [...shares.keys()].sort((a, b) => real.has(b) - real.has(a) || shares.get(b) - shares.get(a))
      .slice(0, Math.floor(MOST_ORDERS / ordersOf(letters)));
    const probabilities = await law.probabilities(words);
    if (run !== state.run) return;
    words.forEach((word, i) => shares.set(word, probabilities[i]));
    const sorted = [...shares].sort((a, b) => b[1] - a[1]);
    const total = sorted.reduce((sum, [word, p]) => sum + (real.has(word) ? p : 0), 0);
    bars(sorted.filter(([word], i) => i < SHOWN || real.has(word)), real);
    status.textContent = real.size
      ? `${DRAWS} draws at ${nfe} evaluation${nfe > 1 ? "s" : ""}: ${real.size} real word${real.size > 1 ? "s" : ""} with ${percent(total)} of the probability.`
      : "The word list has no word of just these letters: the model can only guess.";
    panel.dataset.words = JSON.stringify(Object.fromEntries(sorted));
    drawPath(draws[0]);
    await curve(letters, [...real], run);
  }

  function bars(rows, real) {
    const most = Math.max(...rows.map(([, p]) => p));
    list.replaceChildren(...rows.map(([word, p]) => {
      const bar = el("i", { "aria-hidden": "true" });
      bar.style.width = `${(100 * p) / most}%`;
      return el("li", { class: real.has(word) ? "real" : "" }, el("span", { class: "word" }, word, real.has(word) ? el("span", { class: "star" }, " ★") : null), el("span", { class: "bar" }, bar), el("span", { class: "number" }, percent(p)));
    }), el("li", { class: "key" }, "★ in the word list"));
  }

  async function drawPath(draw = null) {
    const run = state.run;
    const { law } = state;
    const { letters } = law; // as the code has them: in alphabetical order if the model reads them so
    const { steps } = draw ?? (await law.sample(1))[0];
    if (run !== state.run) return;
    const name = law.model.code.name;
    path.replaceChildren(...steps.map((beginning, step) => {
      const code = law.placed(beginning);
      const before = law.placed(step ? steps[step - 1] : []);
      const shown = [...letters].map((_, i) => code[i] ?? null);
      const look = (value, i) => (value === null ? "masked" : before[i] === undefined && step ? "new" : "known");
      return el("div", { class: "step" },
        el("span", { class: "number" }, String(step)),
        el("span", { class: "code", "aria-label": `code ${shown.map((value) => value ?? "masked").join(" ")}` },
          shown.map((value, i) => el("i", { class: look(value, i) }, String(value ?? "·")))),
        el("span", { class: "spelled" }, law.order(beginning).map((item, place) => {
          const laid = shown[name === "insertion" ? item : place] !== null;
          const node = el("b", { class: laid ? "laid" : "loose" }, letters[item]);
          node.style.setProperty("--hue", hue(item, letters.length));
          return node;
        })));
    }));
  }

  async function curve(letters, real, run) {
    if (!real.length) {
      chart.replaceChildren(el("p", { class: "hint" }, "There is none of these letters."));
      return;
    }
    const shares = [];
    for (let nfe = 1; nfe < letters.length; nfe++) {
      const law = nfe === state.nfe ? state.law : model.law(letters, nfe);
      shares.push((await law.probabilities(real)).reduce((a, b) => a + b, 0));
      if (run !== state.run) return;
    }
    const x = (i) => 34 + (shares.length > 1 ? (i * 240) / (shares.length - 1) : 120);
    const y = (p) => 92 - 78 * p;
    const label = `Probability of real words by evaluations: ${shares.map((p, i) => `${i + 1}: ${percent(p)}`).join(", ")}`;
    const picture = svg("svg", { viewBox: "0 0 300 116", role: "img", "aria-label": label });
    for (const p of [0, 0.5, 1]) {
      const tick = svg("text", { x: 26, y: y(p) + 3, "text-anchor": "end", class: "tick" });
      tick.textContent = percent(p, 0);
      picture.append(svg("line", { x1: 30, x2: 286, y1: y(p), y2: y(p), class: "rule" }), tick);
    }
    picture.append(svg("polyline", { points: shares.map((p, i) => `${x(i)},${y(p)}`).join(" "), class: "line" }));
    shares.forEach((p, i) => {
      const tick = svg("text", { x: x(i), y: 110, "text-anchor": "middle", class: "tick" });
      tick.textContent = i + 1;
      picture.append(svg("circle", { cx: x(i), cy: y(p), r: i + 1 === state.nfe ? 6 : 3.5, class: i + 1 === state.nfe ? "dot now" : "dot" }), tick);
    });
    chart.replaceChildren(picture, el("p", { class: "hint" }, "Evaluations of the network for one word."));
  }
}
