// Charts: decision regions, confusion matrix, predictions, and the curves of loss and accuracy.
import { CLASSES, mixed, rgb, themeNow } from "./colours";
import { number } from "./graph";

export type Regions = { kind: "regions"; size: number; low: number[]; high: number[]; best: Uint8Array; sure: Uint8Array };
export type Points = { x: Float32Array; y: Float32Array; label: Uint8Array; train: number };
export type Picture = Regions | { kind: "confusion"; counts: number[][]; classes: string[] } | { kind: "scatter"; true: Float32Array; found: Float32Array; target: string };

/** Return a context in CSS units with the resolution of the screen. */
export function ready(canvas: HTMLCanvasElement): [CanvasRenderingContext2D, number, number] {
  const ratio = Math.min(devicePixelRatio || 1, 2), w = canvas.clientWidth, h = canvas.clientHeight;
  const width = Math.max(Math.round(w * ratio), 1), height = Math.max(Math.round(h * ratio), 1);
  if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
  const c = canvas.getContext("2d")!;
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.clearRect(0, 0, w, h);
  return [c, w, h];
}
const rem = (): number => parseFloat(getComputedStyle(document.documentElement).fontSize);

function mark(c: CanvasRenderingContext2D, kind: number, x: number, y: number, r: number): void {
  switch (kind % 4) { // classes differ in shape and colour
    case 0: c.moveTo(x + r, y); c.arc(x, y, r, 0, 2 * Math.PI); break;
    case 1: c.rect(x - r * 0.9, y - r * 0.9, r * 1.8, r * 1.8); break;
    case 2: c.moveTo(x, y - r * 1.2); c.lineTo(x + r * 1.1, y + r * 0.8); c.lineTo(x - r * 1.1, y + r * 0.8); c.closePath(); break;
    default: c.moveTo(x, y - r * 1.25); c.lineTo(x + r * 1.25, y); c.lineTo(x, y + r * 1.25); c.lineTo(x - r * 1.25, y); c.closePath();
  }
}

const grid = document.createElement("canvas");
export function drawRegions(canvas: HTMLCanvasElement, found: Regions, points: Points | null, sample: [number, number] | null): void {
  const [c, w, h] = ready(canvas), theme = themeNow(), n = found.size, ground = rgb(theme.card);
  grid.width = grid.height = n;
  const inside = grid.getContext("2d")!, image = inside.createImageData(n, n);
  const colours = CLASSES.map(rgb);
  for (let k = 0; k < n * n; k++) {
    const colour = colours[found.best[k] % colours.length], share = 0.12 + 0.5 * Math.max(0, (found.sure[k] / 255 - 0.33) / 0.67);
    for (let j = 0; j < 3; j++) image.data[4 * k + j] = ground[j] + (colour[j] - ground[j]) * share;
    image.data[4 * k + 3] = 255;
  }
  inside.putImageData(image, 0, 0);
  c.imageSmoothingEnabled = true;
  c.drawImage(grid, 0, 0, w, h);
  const at = (x: number, y: number): [number, number] => [((x - found.low[0]) / (found.high[0] - found.low[0])) * w, (1 - (y - found.low[1]) / (found.high[1] - found.low[1])) * h];
  if (points) {
    const r = Math.max(Math.min(w, h) / 150, 1.8);
    for (let label = 0; label < CLASSES.length; label++) {
      c.beginPath();
      for (let k = 0; k < points.x.length; k++) if (points.label[k] === label) mark(c, label, ...at(points.x[k], points.y[k]), k < points.train ? r * 0.85 : r * 1.15);
      c.fillStyle = CLASSES[label]; c.fill();
      c.strokeStyle = theme.card; c.lineWidth = 0.6; c.stroke();
    }
  }
  if (sample) {
    const [x, y] = at(...sample);
    c.strokeStyle = theme.ink; c.lineWidth = 2; c.beginPath(); c.arc(x, y, 8, 0, 2 * Math.PI); c.moveTo(x - 13, y); c.lineTo(x - 5, y); c.moveTo(x + 5, y); c.lineTo(x + 13, y); c.stroke();
  }
}

export function drawConfusion(canvas: HTMLCanvasElement, counts: number[][], classes: string[]): void {
  const [c, w, h] = ready(canvas), theme = themeNow(), n = counts.length, font = Math.max(rem() * 0.8, 10);
  const left = n > 6 ? font * 2.6 : Math.min(font * 0.56 * Math.max(...classes.map((t) => t.length)) + font * 2.2, w * 0.34), bottom = font * 3.2;
  const cell = [(w - left - 4) / n, (h - bottom - 4) / n];
  c.font = `${font}px system-ui, sans-serif`; c.textBaseline = "middle"; c.textAlign = "center";
  counts.forEach((row, i) => {
    const sum = row.reduce((a, b) => a + b, 0) || 1;
    row.forEach((count, j) => {
      const x = left + j * cell[0], y = 4 + i * cell[1], share = count / sum;
      c.fillStyle = mixed(theme.card, i === j ? theme.plus : theme.minus, count ? 0.12 + 0.8 * share : 0.03);
      c.fillRect(x + 1, y + 1, cell[0] - 2, cell[1] - 2);
      c.fillStyle = share > 0.6 ? (theme.dark ? "#06131c" : "#fff") : theme.ink;
      if (count) c.fillText(String(count), x + cell[0] / 2, y + cell[1] / 2);
    });
    c.fillStyle = theme.ink; c.textAlign = "right";
    c.fillText(fitted(c, classes[i], left - font * 1.8), left - 5, 4 + (i + 0.5) * cell[1]);
    c.textAlign = "center";
    c.fillText(fitted(c, classes[i], cell[0] - 4), left + (i + 0.5) * cell[0], h - bottom + font * 0.9);
  });
  c.fillStyle = theme.quiet;
  c.fillText("predicted", left + (w - left) / 2, h - font * 0.8);
  c.save(); c.translate(font * 0.75, (h - bottom) / 2); c.rotate(-Math.PI / 2); c.fillText("true", 0, 0); c.restore();
}
function fitted(c: CanvasRenderingContext2D, text: string, width: number): string {
  while (text.length > 2 && c.measureText(text).width > width) text = `${text.slice(0, -2)}…`;
  return text;
}

export function drawScatter(canvas: HTMLCanvasElement, truth: Float32Array, found: Float32Array, target: string): void {
  const [c, w, h] = ready(canvas), theme = themeNow(), font = Math.max(rem() * 0.8, 10), pad = font * 3.4;
  let low = Infinity, high = -Infinity;
  for (const v of [...truth, ...found]) if (Number.isFinite(v)) { low = Math.min(low, v); high = Math.max(high, v); }
  if (!(high > low)) { high = low + 1; }
  const x = (v: number) => pad + ((v - low) / (high - low)) * (w - pad - 10), y = (v: number) => h - pad - ((v - low) / (high - low)) * (h - pad - 10);
  c.strokeStyle = theme.line; c.lineWidth = 1; c.strokeRect(pad, 10, w - pad - 10, h - pad - 10);
  c.setLineDash([5, 4]); c.strokeStyle = theme.quiet; c.beginPath(); c.moveTo(x(low), y(low)); c.lineTo(x(high), y(high)); c.stroke(); c.setLineDash([]);
  c.fillStyle = theme.plus; c.globalAlpha = 0.65; c.beginPath();
  truth.forEach((v, k) => { c.moveTo(x(v) + 3, y(found[k])); c.arc(x(v), y(found[k]), 3, 0, 2 * Math.PI); });
  c.fill(); c.globalAlpha = 1;
  c.font = `${font}px system-ui, sans-serif`; c.fillStyle = theme.quiet; c.textBaseline = "middle";
  c.textAlign = "center"; c.fillText(`true ${target}`, pad + (w - pad) / 2, h - font * 0.8);
  c.fillText(number(low), pad + font, h - pad + font); c.fillText(number(high), w - 10 - font, h - pad + font);
  c.save(); c.translate(font * 0.8, (h - pad) / 2); c.rotate(-Math.PI / 2); c.fillText("predicted", 0, 0); c.restore();
}

export class Curve {
  private rows: [number, number, number, number][] = []; // done, loss, rate, test
  figure: number | null = null;

  clear(): void { this.rows = []; }
  add(done: number, loss: number | null, rate: number | null, test: number | null): void {
    const last = this.rows[this.rows.length - 1];
    if (last && done < last[0]) this.clear();
    if (loss === null || (last && done === last[0])) return;
    this.rows.push([done, loss, rate ?? NaN, test ?? NaN]);
    if (this.rows.length > 1200) this.rows = this.rows.filter((_, k) => k % 2 === 0 || k > this.rows.length - 50); // thin out old points
  }

  draw(canvas: HTMLCanvasElement): void {
    const [c, w, h] = ready(canvas), theme = themeNow(), font = Math.max(rem() * 0.78, 10), left = font * 2.4, right = font * 3.2, bottom = font * 1.7, top = font * 1.6;
    c.font = `${font}px system-ui, sans-serif`; c.textBaseline = "middle"; c.lineWidth = 1;
    const rows = this.rows, most = Math.max(rows.length ? rows[rows.length - 1][0] : 1, 1), first = rows.length ? rows[0][0] : 0;
    const x = (v: number) => left + ((v - first) / Math.max(most - first, 1)) * (w - left - right);
    const share = (v: number) => top + (1 - Math.max(Math.min(v, 1), 0)) * (h - top - bottom);
    c.strokeStyle = theme.line; c.fillStyle = theme.quiet; c.textAlign = "right";
    for (const v of [0, 0.5, 1]) { c.globalAlpha = 0.6; c.beginPath(); c.moveTo(left, share(v)); c.lineTo(w - right, share(v)); c.stroke(); c.globalAlpha = 1; c.fillText(String(v), left - 5, share(v)); }
    let low = Infinity, high = -Infinity;
    for (const r of rows) if (r[1] > 0 && Number.isFinite(r[1])) { low = Math.min(low, r[1]); high = Math.max(high, r[1]); }
    if (low < Infinity) {
      low = 10 ** Math.floor(Math.log10(low)); high = 10 ** Math.ceil(Math.log10(high)); if (high <= low) high = low * 10;
      const y = (v: number) => top + (1 - Math.log(Math.max(v, low) / low) / Math.log(high / low)) * (h - top - bottom);
      c.textAlign = "left"; c.fillText(exponent(high), w - right + 5, y(high)); c.fillText(exponent(low), w - right + 5, y(low));
      this.line(c, rows.map((r) => [x(r[0]), r[1] > 0 ? y(r[1]) : NaN]), theme.minus, [5, 3]);
    }
    if (this.figure !== null) {
      c.strokeStyle = theme.quiet; c.setLineDash([2, 3]); c.beginPath(); c.moveTo(left, share(this.figure)); c.lineTo(w - right, share(this.figure)); c.stroke(); c.setLineDash([]);
    }
    this.line(c, rows.map((r) => [x(r[0]), share(r[2])]), theme.plus, []);
    this.line(c, rows.map((r) => [x(r[0]), share(r[3])]), theme.ink, [1, 2.5]);
    c.textAlign = "left"; c.fillStyle = theme.quiet; c.fillText(String(first), left, h - font * 0.7);
    c.textAlign = "right"; c.fillText(most.toLocaleString("en"), w - right, h - font * 0.7);
    let at = left;
    c.textAlign = "left";
    const parts: [string, string, number[]][] = [["train", theme.plus, []], ["test", theme.ink, [1, 2.5]], ["loss (log)", theme.minus, [5, 3]]];
    if (this.figure !== null) parts.push(["paper", theme.quiet, [2, 3]]);
    for (const [name, colour, dash] of parts) {
      c.strokeStyle = colour; c.lineWidth = 2; c.setLineDash(dash); c.beginPath(); c.moveTo(at, font * 0.7); c.lineTo(at + font * 1.3, font * 0.7); c.stroke(); c.setLineDash([]);
      c.fillStyle = theme.quiet; c.fillText(name, at + font * 1.6, font * 0.7);
      at += font * 2.4 + c.measureText(name).width;
    }
  }
  private line(c: CanvasRenderingContext2D, points: number[][], colour: string, dash: number[]): void {
    c.strokeStyle = colour; c.lineWidth = 1.8; c.setLineDash(dash); c.beginPath();
    let on = false;
    for (const [x, y] of points) { if (!Number.isFinite(y)) { on = false; continue; } if (on) c.lineTo(x, y); else c.moveTo(x, y); on = true; }
    c.stroke(); c.setLineDash([]);
  }
}
const exponent = (v: number): string => (v >= 0.01 && v < 1000 ? String(Number(v.toPrecision(1))) : v.toExponential(0).replace("-", "−"));
