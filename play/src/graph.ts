// The view of the graph, which can be edited with mouse, touch or keys.
import { Layout, WIDTH, HEIGHT, type Net, type Node } from "./layout";
import { CanvasPainter, SvgPainter, type Curve, type Painter } from "./painter";
import { CLASSES, mixed, themeNow, type Theme } from "./colours";

export type Graph = Net & { activations: string[]; dead: number[]; ticks: number; version: number };
export type Score = [string, string, number];
export type Picked = { neuron: string } | { edge: [string, string] } | null;
export interface Orders {
  edge(add: boolean, src: string, dst: string): void;
  neuron(add: boolean, id?: string, bare?: boolean): void;
  score(src: string, dst: string): void;
  picked(what: Picked): void;
  showStatus(text: string): void;
}
type Line = { at: number; curve?: Curve; loop?: [number, number, number]; head?: [number, number, number] };

const LEVELS = 7, ARROWS = 420, FLOWING = 1200, PIECE = 70, MOST_DOTS = 1.6e6, SEEN = 1400;
/** Limits for large nets: pieces drawn per frame, frames between two sheets, and edges that are drawn (every n-th). */
const EASE = [{ pieces: 3, rest: 0, every: 1 }, { pieces: 2, rest: 6, every: 1 }, { pieces: 2, rest: 20, every: 2 }, { pieces: 2, rest: 40, every: 4 }, { pieces: 2, rest: 60, every: 8 }];
export const number = (v: number): string => (v === 0 ? "0" : Math.abs(v) >= 0.001 && Math.abs(v) < 10000 ? v.toPrecision(3) : v.toExponential(1)).replaceAll("-", "−");

export class GraphView {
  net: Graph | null = null;
  weights: Float32Array = new Float32Array();
  states: Float32Array = new Float32Array();
  labels: { inputs: string[]; outputs: string[] } = { inputs: [], outputs: [] };
  layout = new Layout();
  tick = 0; // a fraction is an animation between two ticks
  absent: Score[] = [];
  picked: Picked = null;
  moving = false;
  dirty = true;
  private stale = true; // whether the style of edges changed after the last drawing
  private shift = true; // whether their paths changed
  private front = document.createElement("canvas"); // the edges of a large net, drawn in pieces over several frames
  private back = document.createElement("canvas");
  private pieces: { key: string; lines: Line[] }[] = [];
  private top = 1;
  private last = 0;
  private usual = 16;
  private ease = 0;
  private eased = 0;
  private frames = 0;
  private nextSheet = 0;
  private blank = true; // nothing of this graph has been drawn yet: draw all of it at once
  private news: { came: Set<number>; went: Line[]; until: number } | null = null;
  private bare = false; // the weights have not arrived yet
  private urgent = false; // the user is dragging it
  private settling = false;
  private dead = new Set<number>();
  private from: Node | null = null; // an edge that is being drawn
  private grabbed: Node | null = null;
  private over: Node | null = null;
  private hovered: { edge?: number; absent?: Score } = {};
  private mouse: [number, number] = [0, 0];
  private asked = "";
  private answer: Score | null = null;
  private lines: Line[] = [];
  private born: [number, number] | null = null; // position of the next neuron
  private left = false; // whether the pointer has left the first neuron; coming back draws a self-loop

  constructor(private canvas: HTMLCanvasElement, private tip: HTMLElement, private orders: Orders) {
    canvas.addEventListener("pointerdown", (e) => this.down(e));
    canvas.addEventListener("pointermove", (e) => this.hover(e));
    canvas.addEventListener("pointerup", (e) => this.up(e));
    canvas.addEventListener("pointerleave", () => { this.hovered = {}; this.over = null; this.tip.hidden = true; this.dirty = true; });
    canvas.addEventListener("pointercancel", () => this.drop());
    canvas.addEventListener("dblclick", (e) => this.twice(e));
    new ResizeObserver(() => this.resize()).observe(canvas);
  }

  // -- contents

  set(net: Graph): void {
    const was = this.net, old = this.lines;
    const first = this.net === null || this.net.inputs !== net.inputs || this.net.outputs !== net.outputs;
    this.net = net;
    this.dead = new Set(net.dead);
    this.layout.set(net, first);
    this.settling = true;
    this.hovered = {}; this.over = null; this.from = null; this.grabbed = null;
    if (this.picked && !this.stillThere(this.picked)) this.pick(null);
    if (this.weights.length !== net.src.length) this.weights = new Float32Array(net.src.length);
    this.absent = this.absent.filter(([s, d]) => !this.has(s, d) && net.names.includes(s) && net.names.includes(d));
    this.pieces = [];
    this.repaint();
    this.bare = this.blank = true;
    if (was && !first) this.mark(was, old, net);
    if (Math.abs(this.canvas.width - this.canvas.clientWidth * this.ratio()) > 2) this.resize();
  }
  take(weights: Float32Array, states: Float32Array): void {
    this.weights = weights; this.states = states; this.stale = this.dirty = true;
    this.top = 1e-9;
    for (const v of weights) this.top = Math.max(this.top, Math.abs(v));
    if (this.bare) { this.bare = false; this.nextSheet = 0; this.urgent = true; }
  }
  repaint(): void { this.stale = this.shift = this.dirty = true; }

  /** Highlight added and removed edges for a moment. */
  private mark(was: Graph, old: Line[], net: Graph): void {
    const name = (g: Graph, k: number): string => `${g.names[g.src[k]]} ${g.names[g.dst[k]]}`;
    const before = new Set(was.src.map((_, k) => name(was, k))), after = new Set(net.src.map((_, k) => name(net, k)));
    const came = net.src.flatMap((_, k) => (before.has(name(net, k)) ? [] : [k])), went = old.filter((l) => l.at < was.src.length && !after.has(name(was, l.at)));
    if (came.length || went.length) this.news = { came: new Set(came), went, until: performance.now() + SEEN };
  }

  private has(src: string, dst: string): boolean {
    const s = this.net!.names.indexOf(src), d = this.net!.names.indexOf(dst);
    return this.net!.src.some((v, k) => v === s && this.net!.dst[k] === d);
  }
  private stillThere(what: Exclude<Picked, null>): boolean {
    return "neuron" in what ? this.net!.names.includes(what.neuron) : this.has(...what.edge);
  }
  bornAt(id: string): void {
    const node = this.layout.nodes.find((n) => n.id === id);
    if (node && this.born) this.layout.hold(node, ...this.born);
    this.born = null; this.settling = true; this.repaint();
  }
  pick(what: Picked): void { this.picked = what; this.dirty = true; this.orders.picked(what); }

  resize(): void {
    const { clientWidth: w, clientHeight: h } = this.canvas, ratio = this.ratio();
    if (w && h) { this.canvas.width = Math.round(w * ratio); this.canvas.height = Math.round(h * ratio); this.pieces = []; this.settling = this.blank = this.urgent = true; this.nextSheet = 0; this.repaint(); }
  }

  /** Return the pixels per CSS unit; fewer if drawing a large net on a large screen would take too long. */
  private ratio(): number {
    const { clientWidth: w, clientHeight: h } = this.canvas, large = (this.net?.src.length ?? 0) > ARROWS;
    return Math.min(devicePixelRatio || 1, 2, large ? Math.sqrt(MOST_DOTS / Math.max(w * h, 1)) : 2);
  }

  /** Draw less of a large net per frame if frames are late. */
  private watch(now: number): void {
    const took = Math.min(now - this.last, 250);
    this.last = now;
    this.usual += 0.15 * (took - this.usual);
    if (now - this.eased < 400) return;
    if (this.usual > 25 && this.ease < EASE.length - 1) { this.ease++; this.eased = now; }
    else if (this.usual < 18 && this.ease > 0 && now - this.eased > 3000) { this.ease--; this.eased = now; }
  }

  /** Draw if something has changed; called once per frame. */
  frame(now: number): void {
    this.watch(now);
    this.frames++;
    const { every } = EASE[this.ease];
    if ((this.net?.src.length ?? 0) > ARROWS && !this.urgent && this.frames % every) return;
    this.urgent = false;
    if (this.bare) return;
    if (this.news) { this.dirty = true; if (now > this.news.until) this.news = null; }
    if (this.settling) { this.settling = this.layout.tick(); this.repaint(); }
    if (this.grabbed) this.repaint();
    if (!this.net || (!this.dirty && !this.pieces.length)) return;
    const w = this.canvas.clientWidth, h = this.canvas.clientHeight, theme = themeNow(), large = this.net.src.length > ARROWS;
    if (large && !this.drawnInPieces(w, h, theme) && !this.dirty) return;
    this.dirty = false;
    const c = this.canvas.getContext("2d")!, ratio = this.canvas.width / Math.max(w, 1), p = new CanvasPainter(c);
    c.setTransform(1, 0, 0, 1, 0, 0);
    c.clearRect(0, 0, this.canvas.width, this.canvas.height);
    if (large) c.drawImage(this.front, 0, 0, this.canvas.width, this.canvas.height);
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    if (!large) { this.run(w, h); this.paintEdges(p, this.grouped(), theme, w, h); this.stale = false; }
    this.paintRest(p, w, h, theme);
  }

  /** Draw some edges of a large net on a sheet, which replaces the previous sheet when all are drawn. */
  private drawnInPieces(w: number, h: number, theme: Theme): boolean {
    if (!this.pieces.length) {
      if (!this.stale || this.frames < this.nextSheet) return false;
      this.stale = false;
      this.run(w, h);
      this.pieces = this.grouped();
      const { width, height } = this.canvas, c = this.back.getContext("2d")!;
      if (this.back.width !== width || this.back.height !== height) { this.back.width = width; this.back.height = height; }
      c.setTransform(1, 0, 0, 1, 0, 0);
      c.clearRect(0, 0, width, height);
      c.scale(width / w, height / h);
    }
    this.paintEdges(new CanvasPainter(this.back.getContext("2d")!), this.pieces.splice(0, this.blank ? this.pieces.length : EASE[this.ease].pieces), theme, w, h);
    this.blank &&= this.pieces.length > 0;
    if (this.pieces.length) return false;
    this.nextSheet = this.frames + EASE[this.ease].rest;
    [this.front, this.back] = [this.back, this.front];
    return true;
  }

  svg(): string {
    const theme = themeNow(), w = this.canvas.clientWidth, h = this.canvas.clientHeight;
    const painter = new SvgPainter(w, h, theme.card);
    this.paint(painter, w, h, theme);
    return painter.done();
  }
  png(): Promise<Blob | null> {
    const picture = document.createElement("canvas"), w = this.canvas.clientWidth, h = this.canvas.clientHeight;
    picture.width = 2 * w; picture.height = 2 * h;
    const c = picture.getContext("2d")!, theme = themeNow();
    c.scale(2, 2); c.fillStyle = theme.card; c.fillRect(0, 0, w, h);
    this.paint(new CanvasPainter(c), w, h, theme);
    return new Promise((done) => picture.toBlob(done, "image/png"));
  }

  // -- drawing

  private box(w: number, h: number): { left: number; right: number; top: number; sx: number; sy: number; unit: number } {
    const unit = Math.min(Math.max(Math.sqrt(w * h) / 40, 9), 34); // size of a neuron
    const named = w > 520 && this.labels.inputs.length <= 26;
    const widest = named ? Math.max(0, ...this.labels.inputs.map((t) => Math.min(t.length, 16))) : 0;
    const last = Math.max(0, ...this.labels.outputs.map((t) => Math.min(t.length, 14)));
    const letter = Math.max(unit * 0.43, 6.6);
    const left = unit * 1.2 + 8 + widest * letter, right = unit * 1.2 + (w > 520 ? 8 + last * letter : 6);
    const top = unit * 1.6;
    return { left, right, top, sx: (w - left - right) / WIDTH, sy: (h - 2 * top) / HEIGHT, unit };
  }
  private radius(node: Node, unit: number): number {
    const net = this.net!, column = Math.max(net.inputs + 1, 1), hidden = net.names.length - net.inputs - net.outputs;
    const crowd = node.role === "hidden" ? hidden : node.role === "output" ? net.outputs : Math.min(column, 26);
    const room = ((this.canvas.clientHeight || 400) * 0.9) / (node.role === "hidden" ? Math.sqrt(crowd) * 4 : crowd) / 2.5;
    return Math.max(Math.min(unit * (node.role === "bias" ? 0.62 : 0.8), room), 3);
  }
  where(id: string): [number, number] | null {
    const node = this.layout.nodes.find((n) => n.id === id), box = this.box(this.canvas.clientWidth, this.canvas.clientHeight);
    return node ? [box.left + node.x * box.sx, box.top + node.y * box.sy] : null;
  }

  private course(a: Node, b: Node, box: ReturnType<GraphView["box"]>): { curve?: Curve; loop?: [number, number, number]; head: [number, number, number] } {
    const x0 = box.left + a.x * box.sx, y0 = box.top + a.y * box.sy, x1 = box.left + b.x * box.sx, y1 = box.top + b.y * box.sy;
    const ra = this.radius(a, box.unit), rb = this.radius(b, box.unit);
    if (a === b) { // a loop on the side away from the centre
      const r = ra * 0.85, up = a.y <= HEIGHT / 2 ? -1 : 1;
      const cx = x0 + r * 0.5, cy = y0 + up * (ra + r * 0.55);
      const angle = up < 0 ? Math.PI * 0.62 : -Math.PI * 0.62;
      return { loop: [cx, cy, r], head: [x0 + ra * 0.62, y0 + up * ra * 0.8, angle] };
    }
    const dx = x1 - x0, dy = y1 - y0, length = Math.hypot(dx, dy) || 1;
    const back = dx < -4 && a.role !== "input" ? 0.26 : a.role !== "hidden" && b.role === "output" && a.role !== "output" ? 0.05 : 0.1;
    const cx = (x0 + x1) / 2 - dy * back, cy = (y0 + y1) / 2 + dx * back;
    const out = Math.atan2(cy - y0, cx - x0), into = Math.atan2(y1 - cy, x1 - cx), gap = Math.min(rb + 1.5, length / 2);
    const ex = x1 - gap * Math.cos(into), ey = y1 - gap * Math.sin(into);
    return { curve: [x0 + Math.min(ra, length / 2) * Math.cos(out), y0 + Math.min(ra, length / 2) * Math.sin(out), cx, cy, ex, ey], head: [ex, ey, into] };
  }

  private value(k: number, n: number): number { // the state of a neuron, interpolated between ticks
    const net = this.net!, at = Math.min(Math.floor(this.tick), net.ticks), next = Math.min(at + 1, net.ticks), part = this.tick - at;
    const a = this.states[at * n + k] ?? 0, b = this.states[next * n + k] ?? 0;
    return a + (b - a) * part;
  }

  private paint(p: Painter, w: number, h: number, theme: Theme): void {
    this.run(w, h);
    this.paintEdges(p, this.grouped(), theme, w, h);
    this.paintRest(p, w, h, theme);
  }

  /** Compute the path of every edge. */
  private run(w: number, h: number): void {
    const net = this.net!, nodes = this.layout.nodes, box = this.box(w, h);
    if (!this.shift) return;
    this.shift = false;
    this.lines = net.src.map((s, k) => ({ at: k, ...this.course(nodes[s], nodes[net.dst[k]], box) }));
  }

  /** Draw edges of equal style together, thin ones first. */
  private grouped(): { key: string; lines: Line[] }[] {
    const sizes = this.weights, groups = new Map<string, Line[]>();
    for (const line of this.lines) {
      const weight = sizes[line.at] ?? 0, level = Math.round(Math.sqrt(Math.abs(weight) / this.top) * LEVELS);
      const key = this.dead.has(line.at) ? "dead" : `${weight < 0 ? "-" : "+"}${level}`;
      const group = groups.get(key);
      if (group) group.push(line); else groups.set(key, [line]);
    }
    const height = (key: string): number => (key === "dead" ? -1 : Number(key.slice(1)));
    const found: { key: string; lines: Line[] }[] = [];
    for (const key of [...groups.keys()].sort((a, b) => height(a) - height(b))) {
      const lines = groups.get(key)!;
      for (let k = 0; k < lines.length; k += PIECE) found.push({ key, lines: lines.slice(k, k + PIECE) });
    }
    return found;
  }

  private paintEdges(p: Painter, pieces: { key: string; lines: Line[] }[], theme: Theme, w: number, h: number): void {
    const many = this.net!.src.length > ARROWS, unit = this.box(w, h).unit, fat = unit * 0.26 * (many ? 0.55 : 1);
    for (const { key, lines } of pieces) {
      const dead = key === "dead", level = dead ? 0 : Number(key.slice(1)) / LEVELS;
      const colour = dead ? theme.line : key[0] === "-" ? theme.minus : theme.plus;
      const width = dead ? 1 : 0.6 + fat * level, alpha = dead ? 0.75 : 0.22 + 0.68 * level, dash = dead ? [4, 4] : undefined;
      p.curves(lines.flatMap((l) => (l.curve ? [l.curve] : [])), colour, width, alpha, dash);
      p.loops(lines.flatMap((l) => (l.loop ? [l.loop] : [])), colour, width, alpha, dash);
      if (!many) p.heads(lines.map((l) => l.head!), Math.min(4 + width * 1.6, unit * 0.6), colour, Math.min(alpha + 0.15, 1));
    }
  }

  private paintRest(p: Painter, w: number, h: number, theme: Theme): void {
    const net = this.net!, nodes = this.layout.nodes, box = this.box(w, h), n = nodes.length;
    this.paintFlow(p, theme, this.top, box.unit);
    this.paintMarks(p, theme, box, nodes);
    const hidden = net.names.length - net.inputs - net.outputs - (net.bias ? 1 : 0);
    nodes.forEach((node, k) => {
      const x = box.left + node.x * box.sx, y = box.top + node.y * box.sy, r = this.radius(node, box.unit);
      const v = this.value(k, n), share = Math.min(Math.abs(v) / (node.role === "hidden" ? 1 : 2.5), 1);
      const fill = mixed(theme.card, v < 0 ? theme.minus : theme.plus, 0.08 + 0.85 * share);
      const output = k - (n - net.outputs), one = this.picked && "neuron" in this.picked && this.picked.neuron === node.id;
      const line = one ? theme.ink : node.role === "output" && this.labels.outputs.length > 1 ? CLASSES[output % CLASSES.length] : theme.quiet;
      p.disc(x, y, r, fill, line, one ? 3 : node.role === "output" ? Math.max(r * 0.2, 2) : 1.4, node.role === "input" || node.role === "bias");
      const ink = share > 0.55 ? (theme.dark ? "#06131c" : "#fff") : theme.ink, size = Math.min(r * 0.85, 24);
      if (node.role === "bias" && r > 6) p.text(x, y, "1", ink, size, "middle");
      if (node.role === "hidden" && r > 8 && hidden <= 40) p.text(x, y, node.id.slice(1), ink, size, "middle");
      const font = Math.min(Math.max(box.unit * 0.72, 11), 22);
      if (node.role === "input" && w > 520 && this.labels.inputs.length <= 26) p.text(x - r - 5, y, short(this.labels.inputs[k] ?? "", 16), theme.ink, Math.min(font, r * 2.4), "end");
      if (node.role === "output" && w > 520) p.text(x + r + 6, y, short(this.labels.outputs[output] ?? "", 14), theme.ink, Math.min(font, r * 2.4), "start");
    });
  }

  private paintFlow(p: Painter, theme: Theme, top: number, unit: number): void {
    const net = this.net!, at = Math.floor(this.tick), part = this.tick - at, n = net.names.length;
    if (part <= 0.001 || at >= net.ticks || net.src.length > FLOWING) return;
    const plus: [number, number, number][] = [], minus: [number, number, number][] = [];
    for (const line of this.lines) {
      const sent = (this.weights[line.at] ?? 0) * (this.states[at * n + net.src[line.at]] ?? 0);
      const r = Math.min(Math.sqrt(Math.abs(sent) / top) * unit * 0.3, unit * 0.34);
      if (r < 0.7 || this.dead.has(line.at)) continue;
      let x: number, y: number;
      if (line.curve) {
        const [x0, y0, cx, cy, x1, y1] = line.curve, q = 1 - part;
        x = q * q * x0 + 2 * q * part * cx + part * part * x1; y = q * q * y0 + 2 * q * part * cy + part * part * y1;
      } else {
        const [cx, cy, radius] = line.loop!, angle = -Math.PI / 2 + 2 * Math.PI * part;
        x = cx + radius * Math.cos(angle); y = cy + radius * Math.sin(angle);
      }
      (sent < 0 ? minus : plus).push([x, y, r]);
    }
    p.dots(plus, theme.plus); p.dots(minus, theme.minus);
  }

  private paintMarks(p: Painter, theme: Theme, box: ReturnType<GraphView["box"]>, nodes: Node[]): void {
    const byName = new Map(nodes.map((node) => [node.id, node]));
    let top = 1e-12;
    for (const [, , v] of this.absent) top = Math.max(top, Math.abs(v));
    for (const score of this.absent) {
      const a = byName.get(score[0]), b = byName.get(score[1]);
      if (!a || !b) continue;
      const { curve, loop } = this.course(a, b, box), width = 0.8 + 3 * Math.abs(score[2] / top), on = this.hovered.absent === score;
      const colour = score[2] > 0 ? theme.minus : theme.plus; // the sign that the weight would get: against the gradient
      if (curve) p.curves([curve], on ? theme.ink : colour, width + (on ? 1 : 0), 0.9, [2, 5]);
      if (loop) p.loops([loop], on ? theme.ink : colour, width + (on ? 1 : 0), 0.9, [2, 5]);
    }
    if (this.news) {
      const share = Math.max(this.news.until - performance.now(), 0) / SEEN, net = this.net!;
      for (const line of this.lines) if (this.news.came.has(line.at) && line.at < net.src.length) this.stroke(p, line, theme.ink, 1 + 3 * share, 0.8 * share);
      for (const line of this.news.went) this.stroke(p, line, theme.quiet, 2, 0.8 * share, [3, 5]);
    }
    const chosen = this.picked && "edge" in this.picked ? this.picked.edge : null;
    for (const line of this.lines) {
      const net = this.net!, one = chosen !== null && net.names[net.src[line.at]] === chosen[0] && net.names[net.dst[line.at]] === chosen[1];
      if (!one && this.hovered.edge !== line.at) continue;
      this.stroke(p, line, theme.ink, one ? 3 : 2, 0.9);
    }
    if (this.from && !this.moving) {
      const to = this.over;
      if (to) { const { curve, loop } = this.course(this.from, to, box); if (curve) p.curves([curve], theme.ink, 2, 1, [5, 4]); if (loop) p.loops([loop], theme.ink, 2, 1, [5, 4]); }
      else { const x = box.left + this.from.x * box.sx, y = box.top + this.from.y * box.sy; p.curves([[x, y, (x + this.mouse[0]) / 2, (y + this.mouse[1]) / 2, ...this.mouse]], theme.ink, 2, 1, [5, 4]); }
    }
  }

  private stroke(p: Painter, line: Line, colour: string, width: number, alpha: number, dash?: number[]): void {
    if (line.curve) p.curves([line.curve], colour, width, alpha, dash);
    if (line.loop) p.loops([line.loop], colour, width, alpha, dash);
  }

  // -- mouse and touch

  private place(e: PointerEvent | MouseEvent): [number, number] {
    const r = this.canvas.getBoundingClientRect();
    return [e.clientX - r.left, e.clientY - r.top];
  }
  private neuronAt(x: number, y: number): Node | null {
    const box = this.box(this.canvas.clientWidth, this.canvas.clientHeight);
    let best: Node | null = null, near = Infinity;
    for (const node of this.layout.nodes) {
      const d = Math.hypot(box.left + node.x * box.sx - x, box.top + node.y * box.sy - y);
      if (d < Math.max(this.radius(node, box.unit) + 3, 7) && d < near) { near = d; best = node; }
    }
    return best;
  }
  private distance(line: { curve?: Curve; loop?: [number, number, number] }, x: number, y: number): number {
    if (line.loop) return Math.abs(Math.hypot(x - line.loop[0], y - line.loop[1]) - line.loop[2]);
    const [x0, y0, cx, cy, x1, y1] = line.curve!;
    let near = Infinity;
    for (let k = 0; k <= 16; k++) {
      const t = k / 16, q = 1 - t;
      near = Math.min(near, Math.hypot(q * q * x0 + 2 * q * t * cx + t * t * x1 - x, q * q * y0 + 2 * q * t * cy + t * t * y1 - y));
    }
    return near;
  }
  private lineAt(x: number, y: number): number | undefined {
    let best: number | undefined, near = 9;
    for (const line of this.lines) { const d = this.distance(line, x, y); if (d < near) { near = d; best = line.at; } }
    return best;
  }
  private absentAt(x: number, y: number): Score | undefined {
    const box = this.box(this.canvas.clientWidth, this.canvas.clientHeight), byName = new Map(this.layout.nodes.map((n) => [n.id, n]));
    let best: Score | undefined, near = 9;
    for (const score of this.absent) {
      const a = byName.get(score[0]), b = byName.get(score[1]);
      const d = a && b ? this.distance(this.course(a, b, box), x, y) : Infinity;
      if (d < near) { near = d; best = score; }
    }
    return best;
  }

  private down(e: PointerEvent): void {
    if (e.button !== 0 || !this.net) return;
    this.canvas.setPointerCapture(e.pointerId);
    this.mouse = this.place(e);
    const node = this.neuronAt(...this.mouse);
    if (node && (this.moving || e.shiftKey)) this.grabbed = node;
    else if (node) { this.from = node; this.left = false; }
  }

  private hover(e: PointerEvent): void {
    if (!this.net) return;
    const [x, y] = (this.mouse = this.place(e)), box = this.box(this.canvas.clientWidth, this.canvas.clientHeight);
    this.dirty = this.urgent = true;
    if (this.grabbed) {
      const put = (v: number, most: number) => Math.min(Math.max(v, 0), most);
      this.layout.hold(this.grabbed, put((x - box.left) / box.sx, WIDTH), put((y - box.top) / box.sy, HEIGHT));
      return;
    }
    this.over = this.neuronAt(x, y);
    if (this.from) { this.left ||= this.over !== this.from; if (this.left) this.offer(this.from, this.over); return; }
    const absent = this.over ? undefined : this.absentAt(x, y);
    this.hovered = this.over ? {} : absent ? { absent } : { edge: this.lineAt(x, y) };
    this.canvas.style.cursor = this.over ? (this.moving ? "grab" : "crosshair") : this.hovered.edge !== undefined || absent ? "pointer" : "default";
    if (this.over) this.show(this.described(this.over));
    else if (absent) this.show(`absent edge ${absent[0]} → ${absent[1]}\nits gradient would be ${number(absent[2])}\nclick to add it`);
    else if (this.hovered.edge !== undefined) {
      const k = this.hovered.edge, names = this.net.names;
      this.show(`${names[this.net.src[k]]} → ${names[this.net.dst[k]]}\nweight ${number(this.weights[k])}${this.dead.has(k) ? "\ndead: it cannot reach an output within the ticks" : ""}`);
    } else this.tip.hidden = true;
  }

  private described(node: Node): string {
    const net = this.net!, k = net.names.indexOf(node.id), n = net.names.length, first = net.inputs + (net.bias ? 1 : 0);
    const what = node.role === "input" ? this.labels.inputs[k] ?? "input" : node.role === "output" ? `output ${this.labels.outputs[k - n + net.outputs] ?? ""}`
      : node.role === "bias" ? "bias" : `hidden, ${net.activations[k - first]}`;
    return `${node.id}: ${what}\nstate ${number(this.value(k, n))}`;
  }

  private offer(src: Node, dst: Node | null): void {
    if (!dst) { this.tip.hidden = true; this.asked = ""; return; }
    const key = `${src.id} ${dst.id}`;
    if (this.asked !== key) { this.asked = key; this.answer = null; if (!this.has(src.id, dst.id)) this.orders.score(src.id, dst.id); }
    const inward = dst.role === "input" || dst.role === "bias";
    this.show(this.has(src.id, dst.id) ? `${src.id} → ${dst.id} exists already` : inward ? "an edge into an input would be dead"
      : `${src.id} → ${dst.id}\n${this.answer ? `its gradient would be ${number(this.answer[2])}` : "…"}`);
  }
  scored(src: string, dst: string, found: Score | undefined): void {
    if (this.asked === `${src} ${dst}` && found) { this.answer = found; if (this.from && this.over) this.offer(this.from, this.over); }
  }
  private show(text: string): void {
    this.tip.textContent = text; this.tip.hidden = false;
    const w = this.canvas.clientWidth, [x, y] = this.mouse, width = this.tip.offsetWidth;
    this.tip.style.left = `${Math.max(Math.min(x + 14, w - width - 4), 2)}px`;
    this.tip.style.top = `${y + 16 + this.tip.offsetHeight > this.canvas.clientHeight ? y - this.tip.offsetHeight - 10 : y + 16}px`;
  }

  private up(e: PointerEvent): void {
    if (!this.net) return;
    const [x, y] = this.place(e), to = this.neuronAt(x, y);
    if (this.grabbed) { this.grabbed = null; this.repaint(); return; }
    if (this.from) {
      const from = this.from, stayed = to === from && !this.left;
      if (stayed) this.pick({ neuron: from.id });
      else if (to && !this.has(from.id, to.id)) this.orders.edge(true, from.id, to.id);
      this.drop();
      return;
    }
    const absent = this.absentAt(x, y), line = this.lineAt(x, y);
    if (absent) { this.orders.edge(true, absent[0], absent[1]); this.tip.hidden = true; }
    else this.pick(line === undefined ? null : { edge: [this.net.names[this.net.src[line]], this.net.names[this.net.dst[line]]] });
  }
  private drop(): void { this.from = this.grabbed = null; this.asked = ""; this.tip.hidden = true; this.left = false; this.dirty = true; }

  private twice(e: MouseEvent): void {
    const [x, y] = this.place(e);
    if (this.neuronAt(x, y) || this.lineAt(x, y) !== undefined && !e.shiftKey && this.near(x, y)) return;
    const box = this.box(this.canvas.clientWidth, this.canvas.clientHeight);
    this.born = [(x - box.left) / box.sx, (y - box.top) / box.sy];
    this.orders.neuron(true, undefined, e.shiftKey);
  }
  private near(x: number, y: number): boolean { return this.lines.some((line) => this.distance(line, x, y) < 3); }

  // -- keys

  walk(by: number): void {
    const names = this.net?.names ?? [];
    if (!names.length) return;
    const now = this.picked && "neuron" in this.picked ? names.indexOf(this.picked.neuron) : by > 0 ? -1 : 0;
    const next = this.layout.nodes[(now + by + names.length) % names.length];
    this.pick({ neuron: next.id });
    this.orders.showStatus(this.described(next).replace("\n", ", "));
  }
  private begun = "";
  begin(): void {
    if (!this.picked || !("neuron" in this.picked)) { this.orders.showStatus("Select a neuron first, with n or b."); return; }
    this.begun = this.picked.neuron;
    this.orders.showStatus(`An edge from ${this.begun}: select another neuron with n or b, then press Enter.`);
  }
  end(): void {
    if (this.begun && this.picked && "neuron" in this.picked) this.orders.edge(true, this.begun, this.picked.neuron);
    this.begun = "";
  }
}

const short = (text: string, most: number): string => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
