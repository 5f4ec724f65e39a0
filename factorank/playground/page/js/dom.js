// Small helpers for elements.

/** An element: attributes by name, listeners as on…, then children. */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.className = value;
    else if (value !== false && value !== undefined && value !== null) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** Radio buttons that look like pills; calls back with the value. */
export function pills(legend, name, options, chosen, change) {
  return el(
    "fieldset",
    { class: "pills" },
    el("legend", {}, legend),
    options.map(([value, label]) =>
      el(
        "label",
        { class: "pill" },
        el("input", { type: "radio", name, value, checked: value === chosen, onchange: () => change(value) }),
        el("span", {}, label),
      ),
    ),
  );
}

export const percent = (p, digits = 1) => `${(100 * p).toFixed(digits)}%`;
export const wait = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

/** The colour of item i of n, the same wherever it is shown. */
export const hue = (i, n) => Math.round((360 * i) / n + 20) % 360;

export const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
