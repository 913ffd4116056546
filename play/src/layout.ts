// Positions of neurons: inputs left, outputs right, hidden ones between, by depth or by the forces of d3-force.
import { forceCollide, forceLink, forceManyBody, forceSimulation, forceX, forceY, type Simulation } from "d3-force";

export type Node = { id: string; x: number; y: number; fx?: number | null; fy?: number | null; goal: number; role: string; index?: number };
export type Net = { names: string[]; inputs: number; outputs: number; bias: boolean; src: number[]; dst: number[] };
export const WIDTH = 1000, HEIGHT = 640; // size of the layout area

const COLUMN = 26; // neurons in a column of inputs or outputs

export class Layout {
  nodes: Node[] = [];
  held = new Map<string, [number, number]>(); // positions set by the user
  across = 1; // number of columns of inputs
  private simulation: Simulation<Node, undefined>;

  constructor() {
    this.simulation = forceSimulation<Node>([]).stop();
  }

  /** Set a new graph; remaining neurons start at their positions. */
  set(net: Net, still: boolean): void {
    const before = new Map(this.nodes.map((node) => [node.id, node]));
    const first = net.inputs + (net.bias ? 1 : 0), hidden = net.names.length - first - net.outputs;
    const depth = depths(net, first, hidden);
    const deepest = depth ? Math.max(0, ...depth) : 0;
    this.nodes = net.names.map((id, k) => {
      const role = k < net.inputs ? "input" : k < first ? "bias" : k < first + hidden ? "hidden" : "output";
      const node: Node = { id, x: 0, y: 0, goal: WIDTH / 2, role };
      const old = before.get(id);
      if (role === "input" || role === "bias") [node.x, node.y] = this.column(k, first, 0, 1);
      else if (role === "output") [node.x, node.y] = this.column(k - first - hidden, net.outputs, WIDTH, -1);
      if (role !== "hidden") { node.fx = node.x; node.fy = node.y; }
      else {
        const h = k - first, angle = -Math.PI / 2 + (2 * Math.PI * (h + 0.5)) / Math.max(hidden, 1);
        node.goal = depth && deepest > 0 ? WIDTH * (0.26 + (0.48 * depth[h]) / deepest) : WIDTH / 2;
        node.x = depth && deepest > 0 ? node.goal : WIDTH / 2 + 210 * Math.cos(angle);
        node.y = depth && deepest > 0 ? (HEIGHT * (h + 0.5)) / hidden : HEIGHT / 2 + 230 * Math.sin(angle);
        if (old && old.role === role) { node.x = old.x; node.y = old.y; }
      }
      const held = this.held.get(id);
      if (held) { node.fx = node.x = held[0]; node.fy = node.y = held[1]; }
      return node;
    });
    this.across = Math.ceil(first / COLUMN);
    const links = net.src.map((s, k) => ({ source: s, target: net.dst[k] })).filter((l) => l.source !== l.target);
    const sparse = links.length < 4 * net.names.length;
    this.simulation = forceSimulation(this.nodes)
      .force("apart", forceManyBody<Node>().strength((n) => (n.role === "hidden" ? -3000 / Math.sqrt(hidden + 4) - 150 : -60)).distanceMax(420))
      .force("x", forceX<Node>((n) => n.goal).strength(depth && deepest > 0 ? 0.35 : 0.05))
      .force("y", forceY<Node>(HEIGHT / 2).strength(0.035))
      .force("size", forceCollide<Node>(Math.min(46, 420 / Math.sqrt(hidden + 20))))
      .force("links", sparse ? forceLink(links).strength(0.04).distance(170) : null)
      .alphaDecay(0.04).stop();
    this.simulation.alpha(still ? 1 : 0.4);
    if (still) while (this.tick()) { /* compute the final positions before the first frame */ }
  }

  private column(k: number, count: number, edge: number, inward: number): [number, number] {
    const columns = Math.ceil(count / COLUMN), rows = Math.ceil(count / columns);
    const column = Math.floor(k / rows), row = k % rows, inThis = Math.min(rows, count - column * rows);
    const step = Math.min(HEIGHT / Math.max(rows, 1), 200);
    return [edge + inward * column * 34, HEIGHT / 2 + (row - (inThis - 1) / 2) * step];
  }

  /** Perform one step of the forces; return false at rest. */
  tick(): boolean {
    if (this.simulation.alpha() < 0.02) return false;
    this.simulation.tick();
    const left = this.across * 34 + 70;
    for (const node of this.nodes) {
      if (node.role !== "hidden") continue;
      node.x = Math.min(Math.max(node.x, left), WIDTH - 110);
      node.y = Math.min(Math.max(node.y, 24), HEIGHT - 24);
    }
    return true;
  }

  hold(node: Node, x: number, y: number): void {
    node.fx = node.x = x; node.fy = node.y = y;
    this.held.set(node.id, [Math.round(x), Math.round(y)]);
  }
}

/** Return the longest path of hidden neurons to each, if their only cycles are self-loops. */
function depths(net: Net, first: number, hidden: number): number[] | null {
  const after: number[][] = Array.from({ length: hidden }, () => []), open = new Array<number>(hidden).fill(0);
  net.src.forEach((s, k) => {
    const a = s - first, b = net.dst[k] - first;
    if (a === b || a < 0 || b < 0 || a >= hidden || b >= hidden) return;
    after[a].push(b); open[b]++;
  });
  const depth = new Array<number>(hidden).fill(0), ready = open.flatMap((count, k) => (count ? [] : [k]));
  let seen = 0;
  while (ready.length) {
    const k = ready.pop()!;
    seen++;
    for (const next of after[k]) { depth[next] = Math.max(depth[next], depth[k] + 1); if (--open[next] === 0) ready.push(next); }
  }
  return seen === hidden ? depth : null;
}
