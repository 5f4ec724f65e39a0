// Pictures that the page draws itself, at any size: the same for the same size on every visit.

import { randomFrom } from "./codes.js";

export const PICTURES = [
  { name: "Lake", draw: lake },
  { name: "Meadow", draw: meadow },
  { name: "Town", draw: town },
  { name: "Marble", draw: marble },
  { name: "Circles", draw: circles },
];

/** A canvas of that size with a picture on it. */
export function drawn(picture, width, height) {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  picture.draw(pen, width, height);
  grain(pen, width, height);
  return canvas;
}

/** The middle of an image, as large as fits, scaled to a size. */
export function cropped(image, width, height) {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const scale = Math.max(width / image.width, height / image.height);
  const [w, h] = [width / scale, height / scale];
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  pen.imageSmoothingQuality = "high";
  pen.drawImage(image, (image.width - w) / 2, (image.height - h) / 2, w, h, 0, 0, width, height);
  return canvas;
}

/** Smooth noise on the plane, about -1 to 1: a sum of octaves of interpolated lattice values. */
function noise(seed, octaves = 5) {
  const random = randomFrom(seed);
  const lattice = Float32Array.from({ length: 65536 }, () => 2 * random() - 1);
  const at = (x, y) => lattice[((y & 255) << 8) | (x & 255)];
  const smooth = (t) => t * t * (3 - 2 * t);
  return (x, y) => {
    let sum = 0;
    let weight = 0.5;
    for (let o = 0; o < octaves; o++) {
      const [i, j] = [Math.floor(x), Math.floor(y)];
      const [s, t] = [smooth(x - i), smooth(y - j)];
      const top = at(i, j) + s * (at(i + 1, j) - at(i, j));
      const bottom = at(i, j + 1) + s * (at(i + 1, j + 1) - at(i, j + 1));
      sum += weight * (top + t * (bottom - top));
      [x, y, weight] = [2.03 * x + 17.1, 2.03 * y + 9.2, weight / 2];
    }
    return sum;
  };
}

function gradient(pen, x0, y0, x1, y1, stops) {
  const fill = pen.createLinearGradient(x0, y0, x1, y1);
  stops.forEach(([at, colour]) => fill.addColorStop(at, colour));
  return fill;
}

/** Grain and slow shading, which no photograph is without: flat parts differ by them. */
function grain(pen, width, height) {
  const random = randomFrom(7);
  const shade = noise(11, 3);
  const image = pen.getImageData(0, 0, width, height);
  const { data } = image;
  for (let y = 0, k = 0; y < height; y++) {
    for (let x = 0; x < width; x++, k += 4) {
      const change = 9 * (random() - 0.5) + 9 * shade((4 * x) / width, (4 * y) / width);
      for (let c = 0; c < 3; c++) data[k + c] += change;
    }
  }
  pen.putImageData(image, 0, 0);
}

function lake(pen, w, h) {
  const random = randomFrom(3);
  pen.fillStyle = gradient(pen, 0, 0, 0, h * 0.62, [
    [0, "#20235c"], [0.35, "#6b3f8f"], [0.62, "#e0637b"], [0.82, "#ffae6b"], [1, "#ffe3a8"],
  ]);
  pen.fillRect(0, 0, w, h * 0.63);
  for (let i = 0; i < 90; i++) {
    pen.fillStyle = `rgba(255,255,255,${0.2 + 0.7 * random()})`;
    pen.beginPath();
    pen.arc(w * random(), h * 0.3 * random(), w * 0.0012 * (1 + 2 * random()), 0, 7);
    pen.fill();
  }
  const sun = pen.createRadialGradient(w * 0.66, h * 0.36, 0, w * 0.66, h * 0.36, w * 0.26);
  [[0, "#fffbe6"], [0.2, "#fff0b8"], [0.22, "rgba(255,214,140,.55)"], [1, "rgba(255,180,120,0)"]].forEach((s) => sun.addColorStop(...s));
  pen.fillStyle = sun;
  pen.fillRect(0, 0, w, h * 0.63);
  const clouds = noise(21, 4);
  for (let i = 0; i < 240; i++) {
    const [x, y] = [w * random(), h * (0.08 + 0.36 * random())];
    const thick = clouds((5 * x) / w, (12 * y) / h);
    if (thick < 0.05) continue;
    pen.fillStyle = `rgba(255,${190 + 40 * random()},${180 + 50 * random()},${0.35 * thick})`;
    pen.beginPath();
    pen.ellipse(x, y, w * 0.09 * (0.4 + random()), h * 0.012 * (0.6 + random()), 0, 0, 7);
    pen.fill();
  }
  ["#7d5b94", "#55467f", "#352f61", "#211f45"].forEach((colour, layer) => {
    const ridge = noise(31 + layer, 6);
    pen.fillStyle = gradient(pen, 0, h * 0.3, 0, h * 0.64, [[0, colour], [1, ["#c98a9a", "#8a6b93", "#5d4f80", "#3a3566"][layer]]]);
    pen.beginPath();
    pen.moveTo(0, h * 0.63);
    for (let x = 0; x <= w; x += 2) {
      pen.lineTo(x, h * (0.46 + 0.045 * layer - (0.2 - 0.03 * layer) * ridge((2.4 * x) / w + layer, layer * 3)));
    }
    pen.lineTo(w, h * 0.63);
    pen.fill();
  });
  pen.save();
  pen.translate(0, h * 1.26);
  pen.scale(1, -1);
  pen.drawImage(pen.canvas, 0, h * 0.26, w, h * 0.37, 0, h * 0.26, w, h * 0.37);
  pen.restore();
  pen.fillStyle = gradient(pen, 0, h * 0.63, 0, h, [[0, "rgba(40,30,80,.15)"], [1, "rgba(12,14,40,.75)"]]);
  pen.fillRect(0, h * 0.63, w, h * 0.37);
  for (let i = 0; i < 420; i++) {
    const depth = random();
    const y = h * (0.635 + 0.36 * depth * depth);
    const near = Math.abs(random() + random() - 1);
    const x = w * (random() < 0.55 ? 0.66 + (random() - 0.5) * (0.1 + 0.3 * depth) : random());
    pen.strokeStyle = `rgba(255,${200 + 40 * random()},${160 + 60 * near},${0.1 + 0.35 * random()})`;
    pen.lineWidth = h * 0.0016 * (0.6 + 2 * depth);
    pen.beginPath();
    pen.moveTo(x, y);
    pen.lineTo(x + w * (0.01 + 0.06 * random()), y + h * 0.002 * (random() - 0.5));
    pen.stroke();
  }
  for (let i = 0; i < 34; i++) {
    const x = i % 2 ? w * 0.26 * random() : w * (1 - 0.17 * random());
    const tall = h * (0.1 + 0.2 * random());
    const foot = h * (0.98 + 0.05 * random());
    pen.fillStyle = `rgb(${12 + 14 * random()},${18 + 16 * random()},${30 + 18 * random()})`;
    for (let k = 0; k < 7; k++) {
      const [y, half] = [foot - tall * (1 - k / 7), tall * 0.05 * (k + 1) * 0.55];
      pen.beginPath();
      pen.moveTo(x, y - tall * 0.12);
      pen.lineTo(x + half, y + tall * 0.1);
      pen.lineTo(x - half, y + tall * 0.1);
      pen.fill();
    }
  }
}

function meadow(pen, w, h) {
  const random = randomFrom(5);
  pen.fillStyle = gradient(pen, 0, 0, 0, h * 0.5, [[0, "#3f8fd6"], [0.6, "#a8d8f0"], [1, "#f3f2d8"]]);
  pen.fillRect(0, 0, w, h);
  const clouds = noise(41, 5);
  for (let i = 0; i < 700; i++) {
    const [x, y] = [w * random(), h * 0.34 * random()];
    const thick = clouds((3 * x) / w, (7 * y) / h) - 0.02;
    if (thick < 0) continue;
    pen.fillStyle = `rgba(255,255,255,${Math.min(0.6, 1.4 * thick)})`;
    pen.beginPath();
    pen.arc(x, y, w * 0.022 * (0.5 + random()), 0, 7);
    pen.fill();
  }
  for (let layer = 0; layer < 3; layer++) {
    const hill = noise(51 + layer, 4);
    pen.fillStyle = gradient(pen, 0, h * 0.36, 0, h, [[0, ["#7fb069", "#5f9c4e", "#4a8a3c"][layer]], [1, "#24551f"]]);
    pen.beginPath();
    pen.moveTo(0, h);
    for (let x = 0; x <= w; x += 3) pen.lineTo(x, h * (0.42 + 0.09 * layer + 0.1 * hill((1.8 * x) / w + 5 * layer, layer)));
    pen.lineTo(w, h);
    pen.fill();
  }
  for (let i = 0; i < 1500; i++) {
    const depth = Math.sqrt(random());
    const [x, y] = [w * random(), h * (0.55 + 0.5 * depth)];
    const tall = h * 0.07 * depth * (0.5 + random());
    pen.strokeStyle = `hsl(${85 + 40 * random()},${40 + 35 * random()}%,${18 + 30 * random()}%)`;
    pen.lineWidth = w * 0.003 * depth;
    pen.beginPath();
    pen.moveTo(x, y);
    pen.quadraticCurveTo(x, y - tall * 0.6, x + tall * (random() - 0.5), y - tall);
    pen.stroke();
  }
  const hues = [350, 12, 45, 280, 210, 325];
  for (let i = 0; i < 190; i++) {
    const depth = i / 190;
    const [x, y] = [w * random(), h * (0.52 + 0.46 * depth + 0.03 * random())];
    const size = w * (0.006 + 0.034 * depth * (0.6 + 0.7 * random()));
    const hue = hues[Math.floor(random() * hues.length)] + 14 * random();
    const petals = 5 + Math.floor(4 * random());
    for (let k = 0; k < petals; k++) {
      const angle = (2 * Math.PI * k) / petals + i;
      pen.fillStyle = `hsl(${hue},${70 + 25 * random()}%,${48 + 26 * random()}%)`;
      pen.beginPath();
      pen.ellipse(x + size * 0.6 * Math.cos(angle), y + size * 0.5 * Math.sin(angle), size * 0.62, size * 0.34, angle, 0, 7);
      pen.fill();
    }
    pen.fillStyle = `hsl(${44 + 8 * random()},95%,${50 + 14 * random()}%)`;
    pen.beginPath();
    pen.arc(x, y, size * 0.32, 0, 7);
    pen.fill();
  }
}

function town(pen, w, h) {
  const random = randomFrom(9);
  pen.fillStyle = gradient(pen, 0, 0, w * 0.4, h, [[0, "#f7cf9b"], [0.5, "#f4a98a"], [1, "#b7607d"]]);
  pen.fillRect(0, 0, w, h);
  pen.fillStyle = "rgba(255,246,214,.9)";
  pen.beginPath();
  pen.arc(w * 0.2, h * 0.2, w * 0.08, 0, 7);
  pen.fill();
  for (let layer = 0; layer < 4; layer++) {
    let x = -w * 0.08 * random();
    while (x < w) {
      const wide = w * (0.07 + 0.07 * random()) * (0.7 + 0.22 * layer);
      const foot = h * (0.58 + 0.15 * layer);
      const tall = h * (0.16 + 0.16 * random()) * (0.8 + 0.14 * layer);
      const hue = [12, 28, 45, 190, 210, 340, 160][Math.floor(7 * random())] + 12 * random();
      const light = 78 - 11 * layer + 8 * random();
      pen.fillStyle = gradient(pen, x, 0, x + wide, 0, [[0, `hsl(${hue},48%,${light}%)`], [1, `hsl(${hue + 8},46%,${light - 13}%)`]]);
      pen.fillRect(x, foot - tall, wide, tall + h * 0.2);
      pen.fillStyle = `hsl(${8 + 14 * random()},${46 + 16 * random()}%,${36 + 12 * random()}%)`;
      pen.beginPath();
      pen.moveTo(x - wide * 0.06, foot - tall);
      pen.lineTo(x + wide / 2, foot - tall - wide * (0.35 + 0.3 * random()));
      pen.lineTo(x + wide * 1.06, foot - tall);
      pen.fill();
      const [across, down] = [2 + Math.floor(2 * random()), 2 + Math.floor((tall / h) * 14)];
      for (let i = 0; i < across; i++) {
        for (let j = 0; j < down; j++) {
          const lit = random() < 0.35;
          pen.fillStyle = lit ? `hsl(46,95%,${66 + 14 * random()}%)` : `hsl(${215 + 20 * random()},30%,${26 + 14 * random()}%)`;
          const [pw, ph] = [(wide / across) * 0.42, (tall / down) * 0.46];
          pen.fillRect(x + (wide * (i + 0.29)) / across, foot - tall + (tall * (j + 0.3)) / down, pw, ph);
        }
      }
      x += wide * (0.94 + 0.12 * random());
    }
    pen.fillStyle = `rgba(${250 - 20 * layer},190,170,.1)`;
    pen.fillRect(0, 0, w, h);
  }
  for (let i = 0; i < 46; i++) {
    const [x, y, r] = [w * random(), h * (0.95 + 0.07 * random()), w * (0.02 + 0.04 * random())];
    for (let k = 0; k < 26; k++) {
      pen.fillStyle = `hsl(${95 + 45 * random()},${32 + 22 * random()}%,${22 + 22 * random()}%)`;
      pen.beginPath();
      pen.arc(x + r * (random() - 0.5) * 2, y + r * (random() - 0.7) * 1.6, r * 0.3, 0, 7);
      pen.fill();
    }
  }
}

function marble(pen, w, h) {
  const [warp, veins, tint] = [noise(61, 5), noise(62, 6), noise(63, 3)];
  const image = pen.createImageData(w, h);
  const palette = [[18, 32, 66], [32, 96, 120], [214, 174, 106], [244, 232, 210], [150, 56, 72]];
  for (let y = 0, k = 0; y < h; y++) {
    for (let x = 0; x < w; x++, k += 4) {
      const [u, v] = [(3.2 * x) / w, (3.2 * y) / w];
      const [a, b] = [warp(u, v), warp(u + 5.2, v + 1.3)];
      const value = veins(u + 2.6 * a, v + 2.6 * b);
      const at = Math.min(0.9999, Math.max(0, 0.5 + 0.95 * value + 0.25 * tint(u, v))) * (palette.length - 1);
      const [i, t] = [Math.floor(at), at % 1];
      const line = Math.exp(-((12 * (value - 0.08 * a)) ** 2));
      for (let c = 0; c < 3; c++) image.data[k + c] = palette[i][c] + t * (palette[i + 1][c] - palette[i][c]) + 46 * line;
      image.data[k + 3] = 255;
    }
  }
  pen.putImageData(image, 0, 0);
}

function circles(pen, w, h) {
  const random = randomFrom(13);
  pen.fillStyle = gradient(pen, 0, 0, w, h, [[0, "#f4ecd8"], [1, "#e4d3b4"]]);
  pen.fillRect(0, 0, w, h);
  for (let i = 0; i < 64; i++) {
    const [x, y] = [w * random(), h * random()];
    const size = w * (0.03 + 0.15 * random() ** 2);
    const hue = 360 * random();
    const rings = 2 + Math.floor(4 * random());
    for (let k = rings; k > 0; k--) {
      pen.fillStyle = `hsla(${hue + 47 * k},${50 + 30 * random()}%,${34 + 40 * random()}%,.9)`;
      pen.beginPath();
      pen.arc(x + size * 0.04 * k, y, (size * k) / rings, 0, 7);
      pen.fill();
    }
  }
  for (let i = 0; i < 34; i++) {
    pen.strokeStyle = `rgba(24,24,38,${0.3 + 0.6 * random()})`;
    pen.lineWidth = w * 0.001 * (1 + 5 * random());
    const [x, y, a] = [w * random(), h * random(), 2 * Math.PI * random()];
    pen.beginPath();
    pen.moveTo(x, y);
    pen.bezierCurveTo(x + w * 0.2 * Math.cos(a), y + h * 0.2, x + w * 0.3 * random(), y - h * 0.3 * random(), x + w * 0.5 * Math.cos(a), y + h * 0.5 * Math.sin(a));
    pen.stroke();
  }
}
