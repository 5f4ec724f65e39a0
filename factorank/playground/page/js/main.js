// The tabs: one at a time, named in the address, moved through by arrow keys.

import { codesTab } from "./codes-tab.js";
import { facts } from "./runtime.js";
import { puzzleTab } from "./puzzle-tab.js";
import { rankingTab } from "./ranking-tab.js";
import { wordsTab } from "./words-tab.js";

const START = { puzzle: puzzleTab, codes: codesTab, words: wordsTab, ranking: rankingTab };
const tabs = [...document.querySelectorAll("[role=tab]")];
const started = new Set();

function show(name, focus = false) {
  for (const tab of tabs) {
    const own = tab.dataset.tab === name;
    tab.setAttribute("aria-selected", own);
    tab.tabIndex = own ? 0 : -1;
    if (own && focus) tab.focus();
    document.getElementById(`panel-${tab.dataset.tab}`).hidden = !own;
  }
  if (!started.has(name)) {
    started.add(name);
    START[name](document.getElementById(`panel-${name}`));
  }
}

for (const [index, tab] of tabs.entries()) {
  tab.addEventListener("click", () => (location.hash = tab.dataset.tab));
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const to = step ? (index + step + tabs.length) % tabs.length : { Home: 0, End: tabs.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    history.replaceState(null, "", `#${tabs[to].dataset.tab}`);
    show(tabs[to].dataset.tab, true);
  });
}

const fromAddress = () => (location.hash.slice(1) in START ? location.hash.slice(1) : "puzzle");
addEventListener("hashchange", () => show(fromAddress()));
show(fromAddress());

const theme = document.getElementById("theme");
const dark = matchMedia("(prefers-color-scheme: dark)");
theme.addEventListener("click", () => {
  const now = document.documentElement.dataset.theme || (dark.matches ? "dark" : "light");
  document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
});

facts.then(({ version }) => (document.getElementById("version").textContent = version));
