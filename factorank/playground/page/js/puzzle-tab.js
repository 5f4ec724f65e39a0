// Puzzles: a picture is cut and scrambled; the network, or the player, puts it together.

import { Board } from "./board.js";
import { randomOrder } from "./codes.js";
import { calm, el, percent, pills, wait } from "./dom.js";
import { assign, beliefs, read, ready, reveal, roundsFor, settle } from "./photographs.js";
import { cropped, drawn, PICTURES } from "./pictures.js";
import { facts } from "./runtime.js";

const GRIDS = [[3, 3], [4, 4], [5, 5], [4, 6], [6, 6], [8, 8], [10, 10]];
const PICTURE = 640; // pixels along a picture, about
const SMALLEST = 64; // and along a piece, at the least
const PACES = [["gentle", "gentle", 3], ["fair", "fair", 1.5], ["fierce", "fierce", 0.6]];

export async function puzzleTab(panel) {
  const { photographs } = await facts;
  const game = { grid: [5, 5], picture: PICTURES[0], photo: null, pace: "fair", run: 0 };

  const stage = el("div", { class: "stage" });
  const status = el("p", { class: "status", role: "status" });
  const say = (words) => (status.textContent = words);
  const rounds = el("input", { type: "range", id: "rounds", min: 1, max: 1, value: 1, disabled: true });
  const roundsLabel = el("label", { for: "rounds" }, "After round");
  const shown = el("input", { type: "checkbox", id: "sure", onchange: marks });
  const file = el("input", { type: "file", id: "photo", accept: "image/*", class: "hidden-input" });
  const solveButton = el("button", { class: "main", type: "button", onclick: solve }, "Solve");
  const rival = el("div", { class: "rival", hidden: true });

  panel.append(
    el("div", { class: "lede" },
      el("h2", {}, "Puzzle"),
      el("p", {}, "A picture is cut and scrambled. One small network, the same for every grid, tells for each piece where it belongs and how sure that is. Once it is solved, point at a piece, or tap it, to see its law over the slots."),
    ),
    el("div", { class: "columns" },
      el("div", { class: "play" }, stage, status),
      el("div", { class: "side" },
        el("div", { class: "card" },
          el("div", { class: "buttons" },
            solveButton,
            el("button", { type: "button", onclick: () => scramble() }, "Scramble"),
            el("button", { type: "button", onclick: oneByOne }, "Piece by piece"),
            el("button", { type: "button", onclick: race }, "Race it"),
          ),
          pills("Pace of a race", "pace", PACES.map(([value, label]) => [value, label]), game.pace, (value) => (game.pace = value)),
          rival,
        ),
        el("div", { class: "card" },
          thumbnails(),
          el("label", { class: "drop", for: "photo" }, el("strong", {}, "Your photograph"), el("span", {}, "choose one, or drop it anywhere here")),
          file,
          pills("Grid", "grid", GRIDS.map((grid) => [grid.join("×"), grid.join(" × ")]), "5×5", (value) => {
            game.grid = value.split("×").map(Number);
            cut();
          }),
        ),
        el("div", { class: "card" },
          el("label", { class: "switch", for: "sure" }, shown, el("span", {}, "Show how sure each piece is")),
          el("div", { class: "slider" }, roundsLabel, rounds),
          el("p", { class: "hint" }, "Beliefs about slots pass from piece to piece, round by round. Drag to watch the picture come together."),
        ),
      ),
    ),
  );

  file.addEventListener("change", () => file.files[0] && photograph(file.files[0]));
  panel.addEventListener("dragover", (event) => event.preventDefault());
  panel.addEventListener("drop", (event) => {
    event.preventDefault();
    const dropped = event.dataTransfer.files[0];
    if (dropped) photograph(dropped);
  });
  rounds.addEventListener("input", async () => {
    const round = Number(rounds.value);
    roundsLabel.textContent = `After round ${round} of ${rounds.max}`;
    const { board, pixels, side } = game;
    const { logits } = await read(pixels, side, ...game.grid, round);
    if (board === game.board && round === Number(rounds.value)) board.lay(assign(beliefs(logits, board.n), board.n));
  });

  function thumbnails() {
    return el("fieldset", { class: "thumbs" }, el("legend", {}, "Picture"),
      PICTURES.map((picture, i) => {
        const canvas = drawn(picture, 96, 96);
        canvas.setAttribute("aria-hidden", "true");
        const input = el("input", { type: "radio", name: "picture", value: i, checked: i === 0, "aria-label": picture.name });
        input.addEventListener("change", () => {
          Object.assign(game, { picture, photo: null });
          cut();
        });
        return el("label", { class: "thumb", title: picture.name }, input, canvas);
      }));
  }

  async function photograph(chosen) {
    try {
      game.photo = await createImageBitmap(chosen);
    } catch {
      say(`${chosen.name} is no picture that this browser can read.`);
      return;
    }
    panel.querySelectorAll(".thumb input").forEach((input) => (input.checked = false));
    cut();
  }

  /** Cut the picture anew and scramble it. */
  function cut() {
    const [rows, columns] = game.grid;
    const side = Math.max(SMALLEST, Math.min(photographs.largest, Math.round(PICTURE / Math.max(rows, columns))));
    const [width, height] = [columns * side, rows * side];
    game.side = side;
    const whole = game.photo ? cropped(game.photo, width, height) : drawn(game.picture, width, height);
    game.tiles = Array.from({ length: rows * columns }, (_, slot) => {
      const tile = el("canvas", { width: side, height: side, "aria-hidden": "true" });
      const [x, y] = [(slot % columns) * side, Math.floor(slot / columns) * side];
      tile.getContext("2d", { willReadFrequently: true }).drawImage(whole, -x, -y);
      return tile;
    });
    stop();
    deal(game.tiles.map((_, slot) => slot), "The whole picture. Scramble it, or solve at once.");
    scramble(calm() ? 0 : 700);
  }

  /** Lay pieces in an order: truth[p] is the true slot of the piece that starts at slot p. */
  function deal(truth, words) {
    const [rows, columns] = game.grid;
    game.truth = truth;
    game.answer = game.pixels = null;
    game.board = new Board(truth.map((slot) => game.tiles[slot]), rows, columns, { moved, inspect });
    stage.replaceChildren(game.board.node);
    rounds.disabled = true;
    roundsLabel.textContent = "After round";
    shown.checked = false;
    say(words);
  }

  async function scramble(delay = 0) {
    const run = stop();
    await wait(delay);
    if (run !== game.run) return;
    // The pieces move from where they are to where they are dealt, then take their new numbers.
    const before = game.board;
    const lying = before.at.map((piece) => game.truth[piece]);
    const truth = randomOrder(game.tiles.length);
    const target = new Array(truth.length);
    truth.forEach((slot, place) => (target[lying.indexOf(slot)] = place));
    const move = new Array(truth.length);
    before.at.forEach((piece, slot) => (move[piece] = target[slot]));
    before.mark(null);
    before.cover(new Set());
    before.lay(move, { spread: calm() ? 0 : 350 });
    await wait(calm() ? 0 : 750);
    if (run !== game.run) return;
    deal(truth, "Scrambled. Drag pieces, click two to exchange them, or let the network solve it.");
  }

  /** The pixels (n, side, side, 3) of the pieces as they were dealt. */
  function pixelsOf({ truth, tiles, side }) {
    const values = new Float32Array(truth.length * side * side * 3);
    let at = 0;
    for (const slot of truth) {
      const { data } = tiles[slot].getContext("2d", { willReadFrequently: true }).getImageData(0, 0, side, side);
      for (let k = 0; k < data.length; k++) if (k % 4 < 3) values[at++] = data[k];
    }
    return values;
  }

  /** The network's answer for the pieces as they were dealt. */
  async function answer() {
    if (!game.answer) {
      say("Loading the network, 2.4 megabytes, and its runtime, once …");
      await ready();
      say("Looking at the pieces …");
      await wait(30);
      const { truth } = game;
      const start = performance.now();
      const pixels = pixelsOf(game);
      const reading = await read(pixels, game.side, ...game.grid);
      const result = await settle(reading);
      result.milliseconds = performance.now() - start;
      if (truth !== game.truth) return null;
      performance.measure("solve", { start, end: start + result.milliseconds });
      Object.assign(game, { answer: result, pixels });
      rounds.max = roundsFor(...game.grid);
      rounds.value = rounds.max;
      rounds.disabled = false;
      roundsLabel.textContent = `After round ${rounds.max} of ${rounds.max}`;
    }
    return game.answer;
  }

  async function solve() {
    const run = stop();
    const result = await answer();
    if (!result || run !== game.run) return;
    game.board.lay(result.slots, { spread: calm() ? 0 : 250 });
    marks();
    const right = result.slots.filter((slot, piece) => slot === game.truth[piece]).length;
    const outcome = right === game.board.n ? "every piece in its place" : `${right} of ${game.board.n} pieces in place`;
    say(`Solved in ${Math.round(result.milliseconds)} ms, ${percent(result.probability)} sure of the whole: ${outcome}.`);
    panel.dataset.solved = JSON.stringify({ slots: result.slots, probability: result.probability, each: result.each, milliseconds: result.milliseconds });
    panel.puzzle = { pixels: game.pixels, grid: game.grid, side: game.side };
  }

  async function oneByOne() {
    const run = stop();
    const result = await answer();
    if (!result || run !== game.run) return;
    const { board } = game;
    const hidden = new Set(board.at);
    board.cover(hidden);
    board.mark(null);
    for (const { piece, slot, probability } of reveal(result.places, board.n)) {
      board.swap(board.slotOf(piece), slot);
      hidden.delete(piece);
      board.cover(hidden);
      say(`Piece ${board.n - hidden.size} of ${board.n}: ${percent(probability)} sure, given those that lie.`);
      await wait(calm() ? 20 : Math.max(60, 3200 / board.n));
      if (run !== game.run) return board.cover(new Set());
    }
    say(`All ${board.n} pieces, the surest first: each was told which slots were taken.`);
  }

  async function race() {
    await scramble();
    const run = stop();
    const result = await answer();
    if (!result || run !== game.run) return;
    const [rows, columns] = game.grid;
    const copies = game.truth.map((slot) => {
      const copy = el("canvas", { width: 48, height: 48 });
      copy.getContext("2d").drawImage(game.tiles[slot], 0, 0, 48, 48);
      return copy;
    });
    const other = new Board(copies, rows, columns, { label: "The network's board" });
    const clock = el("output", { class: "clock" }, "0.0 s");
    rival.replaceChildren(el("p", {}, `The network needed ${Math.round(result.milliseconds)} ms. To be fair, it waits.`), clock, other.node);
    rival.hidden = false;
    game.race = true;
    say("Go! Put the picture together before the network does.");
    const start = performance.now();
    const seconds = PACES.find(([value]) => value === game.pace)[2];
    const steps = [...reveal(result.places, other.n)];
    while (run === game.run && game.race) {
      const time = (performance.now() - start) / 1000;
      clock.textContent = `${time.toFixed(1)} s`;
      while (steps.length && other.n - steps.length < time / seconds) {
        const { piece, slot } = steps.shift();
        other.swap(other.slotOf(piece), slot);
      }
      if (won()) {
        say(`You won in ${time.toFixed(1)} s!`);
        game.race = false;
      } else if (!steps.length) {
        say(`The network was first, after ${time.toFixed(1)} s. Again?`);
        game.race = false;
      }
      await wait(100);
    }
  }

  const won = () => game.board.at.every((piece, slot) => game.truth[piece] === slot);

  function moved() {
    if (won()) say("That is the picture. Well done!");
  }

  function inspect(piece) {
    if (!game.answer || piece === null || game.race) {
      game.board.tint(null);
      return;
    }
    const { n } = game.board;
    game.board.tint(Array.from(game.answer.places.subarray(piece * n, (piece + 1) * n), Math.exp));
  }

  function marks() {
    game.board.mark(shown.checked && game.answer ? game.answer.each : null);
  }

  /** End whatever moves the pieces; the number of the run that may begin now. */
  function stop() {
    game.race = false;
    rival.hidden = true;
    game.board?.cover(new Set());
    return ++game.run;
  }

  cut();
}
