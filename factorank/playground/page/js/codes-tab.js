// Codes: an order that is dragged, and four codes that move with it; any value of a code gives an order again.

import { CODES, cycles, inverse, randomOrder } from "./codes.js";
import { el, hue, pills, svg } from "./dom.js";

const LENGTHS = [3, 4, 5, 6, 7, 8];
const letter = (item) => "ABCDEFGH"[item];

export function codesTab(panel) {
  const state = { order: [2, 4, 3, 0, 1] };

  const tiles = el("div", { class: "tiles", role: "group", "aria-label": "The order, best first" });
  const said = el("p", { class: "status", role: "status" });
  const circle = el("div", { class: "circle" });
  const cards = CODES.map((code) => {
    const stairs = el("div", { class: "stairs" });
    const written = el("output", { class: "written" });
    const note = el("p", { class: "note" });
    return { code, stairs, written, note };
  });

  panel.append(
    el("div", { class: "lede" },
      el("h2", {}, "Codes"),
      el("p", {}, "An order is hard to model place by place: no item may come twice. Each of these codes says the same in numbers that do not constrain one another. Drag the items, or change any number: you always get a valid order."),
    ),
    el("div", { class: "card order" },
      tiles,
      el("div", { class: "row" },
        pills("Items", "items", LENGTHS.map((n) => [String(n), String(n)]), "5", (n) => set(randomOrder(Number(n)))),
        el("div", { class: "buttons" },
          el("button", { type: "button", onclick: () => set(randomOrder(state.order.length)) }, "Shuffle"),
          el("button", { type: "button", onclick: () => set(state.order.map((_, i) => i)) }, "Sort"),
          el("button", { type: "button", onclick: oneCycle }, "One cycle"),
        ),
      ),
      said,
    ),
    el("div", { class: "codes" },
      cards.map(({ code, stairs, written, note }) =>
        el("article", { class: "card code" },
          el("header", {}, el("h3", {}, code.title), written),
          el("p", { class: "hint" }, `Position i holds ${code.says}.`),
          stairs,
          note,
        )),
      el("article", { class: "card code" },
        el("header", {}, el("h3", {}, "Cycles")),
        el("p", { class: "hint" }, "An arrow goes from each place to the item that stands there."),
        circle,
      ),
    ),
  );

  function set(order, words = "") {
    state.order = order;
    draw();
    said.textContent = words || `The order is ${order.map(letter).join(", ")}.`;
  }

  function oneCycle() {
    const code = CODES.find(({ name }) => name === "fisher-yates");
    const sizes = code.sizes(state.order.length);
    set(code.decode(sizes.map((size) => (size > 1 ? 1 + Math.floor((size - 1) * Math.random()) : 0))),
      "Every draw but the last is above zero, so all items are in one cycle.");
  }

  function move(from, to) {
    const order = [...state.order];
    order.splice(to, 0, ...order.splice(from, 1));
    set(order, `${letter(state.order[from])} is now at place ${to}.`);
  }

  function draw() {
    drawTiles();
    cards.forEach(drawCode);
    drawCycles();
  }

  function drawTiles() {
    const { order } = state;
    const n = order.length;
    const focused = document.activeElement?.dataset?.item;
    while (tiles.children.length > n) tiles.lastChild.remove();
    while (tiles.children.length < n) tiles.append(tile(tiles.children.length));
    // A tile belongs to an item; it slides to the item's place.
    inverse(order).forEach((place, item) => {
      const node = tiles.children[item];
      node.style.setProperty("--hue", hue(item, n));
      node.style.left = `${(100 * place) / n}%`;
      node.style.width = `${100 / n}%`;
      node.style.order = place;
      node.querySelector(".unseen").textContent = `, at place ${place} of ${n}`;
    });
    if (focused !== undefined) tiles.children[focused]?.focus();
  }

  function tile(item) {
    const node = el("button", { type: "button", class: "tile", "data-item": item },
      el("span", {}, el("b", {}, letter(item)), el("small", {}, String(item)), el("span", { class: "unseen" })));
    const place = () => state.order.indexOf(item);
    node.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const to = place() + step;
      if (to >= 0 && to < state.order.length) move(place(), to);
    });
    node.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      node.setPointerCapture(event.pointerId);
      node.classList.add("lifted");
      const frame = tiles.getBoundingClientRect();
      const follow = ({ clientX }) => {
        const to = Math.floor(((clientX - frame.left) / frame.width) * state.order.length);
        if (to >= 0 && to < state.order.length && to !== place()) move(place(), to);
      };
      const drop = () => {
        node.classList.remove("lifted");
        node.removeEventListener("pointermove", follow);
      };
      node.addEventListener("pointermove", follow);
      node.addEventListener("pointerup", drop, { once: true });
      node.addEventListener("pointercancel", drop, { once: true });
    });
    return node;
  }

  function drawCode({ code, stairs, written, note }) {
    const { order } = state;
    const n = order.length;
    const values = code.encode(order);
    const sizes = code.sizes(n);
    written.textContent = values.join(" ");
    if (stairs.children.length !== n) stairs.replaceChildren(...values.map((_, i) => column(code, i, sizes[i])));
    const cyclic = code.name === "fisher-yates" && values.slice(0, -1).every((value) => value > 0);
    values.forEach((value, i) => {
      const node = stairs.children[i];
      // Position i of an insertion code is item i; of the others, place i.
      const item = code.name === "insertion" ? i : order[i];
      node.style.setProperty("--hue", hue(item, n));
      node.classList.toggle("lit", code.name === "fisher-yates" && i < n - 1 && value > 0);
      node.classList.toggle("changed", node.getAttribute("aria-valuenow") !== null && node.getAttribute("aria-valuenow") !== String(value));
      node.setAttribute("aria-valuenow", value);
      node.querySelector(".number").textContent = value;
      [...node.querySelector(".cells").children].forEach((cell, k) => cell.classList.toggle("on", sizes[i] - 1 - k === value));
    });
    note.hidden = code.name !== "fisher-yates";
    if (!note.hidden) {
      const zeros = values.slice(0, -1).flatMap((value, i) => (value ? [] : [i]));
      note.textContent = cyclic
        ? `All ${n - 1} draws that can be are above zero: one cycle of ${n}.`
        : `Zero at position ${zeros.join(", ")}: more than one cycle.`;
      note.classList.toggle("good", cyclic);
    }
  }

  function column(code, position, size) {
    const node = el("div", {
      class: "column",
      role: "slider",
      tabindex: size > 1 ? 0 : -1,
      "aria-label": `${code.title} code, position ${position}`,
      "aria-valuemin": 0,
      "aria-valuemax": size - 1,
    }, el("div", { class: "cells" }, Array.from({ length: size }, () => el("i"))), el("b", { class: "number" }), el("small", {}, String(position)));
    const change = (value) => {
      const values = code.encode(state.order);
      if (value < 0 || value >= size || value === values[position]) return;
      values[position] = value;
      const order = code.decode(values);
      set(order, `${code.title} position ${position} is ${value}: the order is ${order.map(letter).join(", ")}.`);
    };
    node.addEventListener("keydown", (event) => {
      const now = Number(node.getAttribute("aria-valuenow"));
      const to = { ArrowUp: now + 1, ArrowRight: now + 1, ArrowDown: now - 1, ArrowLeft: now - 1, Home: 0, End: size - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      change(to);
    });
    const pick = (event) => {
      const cells = node.querySelector(".cells").getBoundingClientRect();
      change(Math.min(size - 1, Math.max(0, size - 1 - Math.floor(((event.clientY - cells.top) / cells.height) * size))));
    };
    node.addEventListener("pointerdown", (event) => {
      node.setPointerCapture(event.pointerId);
      pick(event);
      node.addEventListener("pointermove", pick);
      node.addEventListener("pointerup", () => node.removeEventListener("pointermove", pick), { once: true });
      node.addEventListener("pointercancel", () => node.removeEventListener("pointermove", pick), { once: true });
    });
    return node;
  }

  function drawCycles() {
    const { order } = state;
    const n = order.length;
    const all = cycles(order);
    const at = (i, r = 78) => [100 + r * Math.sin((2 * Math.PI * i) / n), 100 - r * Math.cos((2 * Math.PI * i) / n)];
    const title = `${all.length === 1 ? "One cycle" : `${all.length} cycles`}: ${all.map((cycle) => cycle.map(letter).join(" → ")).join("; ")}`;
    const picture = svg("svg", { viewBox: "0 0 200 200", role: "img", "aria-label": title });
    picture.append(svg("defs", {}, svg("marker", { id: "tip", viewBox: "0 0 8 8", refX: 6, refY: 4, markerWidth: 5, markerHeight: 5, orient: "auto-start-reverse" }, svg("path", { d: "M0 0 8 4 0 8z", fill: "context-stroke" }))));
    all.forEach((cycle, which) => {
      for (const from of cycle) {
        const to = order[from];
        const colour = `oklch(0.68 0.16 ${(which * 137 + 30) % 360})`;
        const [x0, y0] = at(from, 62);
        const [x1, y1] = at(to, 62);
        const [ox, oy] = at(from, 96);
        const path = from === to
          ? `M${at(from - 0.12, 88).join(" ")} Q${ox + (ox - 100) * 0.12} ${oy + (oy - 100) * 0.12} ${at(from + 0.12, 88).join(" ")}`
          : `M${x0} ${y0} Q${100 + (x0 + x1 - 200) * 0.22} ${100 + (y0 + y1 - 200) * 0.22} ${x1} ${y1}`;
        picture.append(svg("path", { d: path, fill: "none", stroke: colour, "stroke-width": 2.6, "marker-end": "url(#tip)", "stroke-linecap": "round" }));
      }
    });
    order.forEach((_, i) => {
      const [x, y] = at(i);
      const dot = svg("circle", { cx: x, cy: y, r: 13, fill: `oklch(0.78 0.13 ${hue(i, n)})` });
      const name = svg("text", { x, y: y + 4.5, "text-anchor": "middle", class: "node" });
      name.textContent = letter(i);
      picture.append(dot, name);
    });
    circle.replaceChildren(picture, el("p", { class: "note" }, title));
  }

  set(state.order);
}
