// A puzzle on the page: pieces as buttons that lie in slots, dragged, or exchanged by two clicks or keys.

import { el, percent } from "./dom.js";

const DRAG = 6; // pixels from which a press is a drag

export class Board {
  /**
   * @param canvases the picture of each piece; piece p starts at slot p.
   * @param moved called after the player has exchanged two pieces.
   */
  constructor(canvases, rows, columns, { moved = null, label = "The puzzle", inspect = null } = {}) {
    Object.assign(this, { rows, columns, moved, inspect, n: rows * columns, held: null });
    this.at = canvases.map((_, piece) => piece); // the piece at each slot
    this.node = el("div", { class: `board${moved ? "" : " still"}`, role: "group", "aria-label": label });
    this.node.style.setProperty("--ratio", columns / rows);
    this.node.style.setProperty("--columns", columns);
    this.node.style.setProperty("--rows", rows);
    this.pieces = canvases.map((canvas, piece) => this.#piece(canvas, piece));
    this.heat = Array.from({ length: this.n }, (_, slot) => this.#placed(el("div", { class: "heat", "aria-hidden": "true" }), slot));
    this.node.append(...this.pieces, ...this.heat);
    this.#name();
  }

  slotOf(piece) {
    return this.at.indexOf(piece);
  }

  /** Lay all pieces: slots[piece] is where it goes. */
  lay(slots, { spread = 0 } = {}) {
    slots.forEach((slot, piece) => {
      this.at[slot] = piece;
      this.pieces[piece].style.transitionDelay = `${Math.round(spread * Math.random())}ms`;
      this.#placed(this.pieces[piece], slot);
    });
    this.#name();
  }

  swap(a, b) {
    const [first, second] = [this.at[a], this.at[b]];
    if (first === second) return;
    [this.at[a], this.at[b]] = [second, first];
    for (const [piece, slot] of [[first, b], [second, a]]) {
      this.pieces[piece].style.transitionDelay = "0ms";
      this.#placed(this.pieces[piece], slot);
    }
    this.#name();
  }

  /** Mark pieces: how sure each is, or null to take the marks off. */
  mark(probabilities) {
    this.marks = probabilities;
    this.pieces.forEach((node, piece) => {
      const badge = node.querySelector(".badge");
      badge.textContent = probabilities ? percent(probabilities[piece], 0) : "";
      badge.hidden = !probabilities;
      badge.classList.toggle("doubtful", Boolean(probabilities) && probabilities[piece] < 0.9);
    });
    this.#name();
  }

  /** Tint the slots by probabilities, or null. */
  tint(probabilities) {
    this.node.classList.toggle("tinted", Boolean(probabilities));
    this.heat.forEach((node, slot) => {
      const p = probabilities ? probabilities[slot] : 0;
      node.style.opacity = p;
      node.textContent = p >= 0.005 ? percent(p, 0) : "";
    });
  }

  cover(hidden) {
    this.pieces.forEach((node, piece) => node.classList.toggle("covered", hidden.has(piece)));
  }

  #placed(node, slot) {
    node.style.left = `${(100 * (slot % this.columns)) / this.columns}%`;
    node.style.top = `${(100 * Math.floor(slot / this.columns)) / this.rows}%`;
    return node;
  }

  #name() {
    this.at.forEach((piece, slot) => {
      const [row, column] = [1 + Math.floor(slot / this.columns), 1 + (slot % this.columns)];
      const sure = this.marks ? `, ${percent(this.marks[piece], 0)} sure` : "";
      this.pieces[piece].setAttribute("aria-label", `Piece ${piece + 1} at row ${row}, column ${column}${sure}`);
      this.pieces[piece].tabIndex = this.moved && slot === (this.focused ?? 0) ? 0 : -1;
    });
  }

  #piece(canvas, piece) {
    if (!this.moved) {
      const still = el("div", { class: "piece" }, canvas, el("span", { class: "badge", hidden: true }));
      still.setAttribute("aria-hidden", "true");
      return this.#placed(still, piece);
    }
    const node = el("button", { class: "piece", type: "button", "aria-pressed": "false" }, canvas, el("span", { class: "badge", hidden: true }));
    node.addEventListener("click", () => this.#choose(piece));
    node.addEventListener("keydown", (event) => this.#key(event, piece));
    node.addEventListener("pointerdown", (event) => this.#drag(event, piece));
    node.addEventListener("pointerenter", () => this.inspect?.(piece));
    node.addEventListener("pointerleave", () => this.inspect?.(null));
    node.addEventListener("focus", () => this.inspect?.(piece));
    node.addEventListener("blur", () => this.inspect?.(null));
    return this.#placed(node, piece);
  }

  #hold(piece) {
    this.held = piece;
    this.pieces.forEach((node, other) => node.setAttribute("aria-pressed", other === piece));
  }

  #choose(piece) {
    if (this.dragged) {
      this.dragged = false;
      return;
    }
    if (this.held === null || this.held === piece) {
      this.#hold(this.held === null ? piece : null);
      return;
    }
    const [a, b] = [this.slotOf(this.held), this.slotOf(piece)];
    this.#hold(null);
    this.swap(a, b);
    this.moved(a, b);
  }

  #key(event, piece) {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.columns, ArrowDown: this.columns }[event.key];
    if (event.key === "Escape") this.#hold(null);
    if (!step) return;
    event.preventDefault();
    const slot = this.slotOf(piece);
    const to = slot + step;
    if (to < 0 || to >= this.n || (Math.abs(step) === 1 && Math.floor(to / this.columns) !== Math.floor(slot / this.columns))) return;
    this.focused = to;
    if (event.shiftKey) {
      this.swap(slot, to);
      this.moved(slot, to);
      this.pieces[piece].focus();
    } else {
      this.#name();
      this.pieces[this.at[to]].focus();
    }
  }

  #drag(event, piece) {
    if (event.button) return;
    const node = this.pieces[piece];
    const start = [event.clientX, event.clientY];
    const frame = this.node.getBoundingClientRect();
    let lifted = false;
    node.setPointerCapture(event.pointerId); // a quick drag has left the piece before the first move is told
    const move = ({ clientX, clientY }) => {
      const [dx, dy] = [clientX - start[0], clientY - start[1]];
      if (!lifted && Math.hypot(dx, dy) < DRAG) return;
      if (!lifted) {
        lifted = true;
        node.classList.add("lifted");
      }
      node.style.transform = `translate(${dx}px, ${dy}px) scale(1.06)`;
    };
    const drop = (end) => {
      node.removeEventListener("pointermove", move);
      node.removeEventListener("pointerup", drop);
      node.removeEventListener("pointercancel", drop);
      node.classList.remove("lifted");
      node.style.transform = "";
      if (!lifted || end.type === "pointercancel") return;
      this.dragged = true; // the click that follows is part of the drag
      setTimeout(() => (this.dragged = false));
      const column = Math.floor(((end.clientX - frame.left) / frame.width) * this.columns);
      const row = Math.floor(((end.clientY - frame.top) / frame.height) * this.rows);
      if (column < 0 || row < 0 || column >= this.columns || row >= this.rows) return;
      const from = this.slotOf(piece);
      const to = row * this.columns + column;
      if (from === to) return;
      this.swap(from, to);
      this.moved(from, to);
    };
    node.addEventListener("pointermove", move);
    node.addEventListener("pointerup", drop);
    node.addEventListener("pointercancel", drop);
  }
}
