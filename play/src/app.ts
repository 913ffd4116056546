// The page: messages of the training process go to the views, user actions become orders to the process.
import { Curve, drawConfusion, drawRegions, drawScatter, type Picture, type Points } from "./charts";
import { CLASSES } from "./colours";
import { GraphView, number, type Graph, type Picked, type Score } from "./graph";
import { packed, unpacked } from "./link";
import { Wire, type Arrays, type Message } from "./wire";

const $ = <T extends HTMLElement = HTMLElement>(id: string): T => document.getElementById(id) as T;
const input = (id: string): HTMLInputElement => $(id);
const select = (id: string): HTMLSelectElement => $(id);
const button = (id: string): HTMLButtonElement => $(id);

const KEY = `meshnn-play ${location.pathname}`; // key of the state that a reload restores
const MOST_LINK = 200_000; // maximum number of characters of a table in a link
type Table = { name: string; text: string; target: string; impute: boolean; drop: string[]; columns: string[] };

let data: Message | null = null, points: Points | null = null, picture: Picture | null = null;
let settings: Message = { kind: "settings", running: false, solver: "adam", rate: 0.01, pace: 0, budget: 1000, ticks: 3, unit: "epoch", uses_rate: true };
let table: Table | null = null, sample: [number, number] | null = null;
let done = 0, greeted = false, lost = false, pictureDirty = true, curveDirty = true, saved = 0;
let row = 0, playing = false, asking = 0, showAbsent = false, followsEnd = true;
const curve = new Curve();

const wire = new Wire(receive, closed);
const graph = new GraphView($<HTMLCanvasElement>("graph"), $("tip"), {
  edge: (add, src, dst) => wire.send("edge", { add, src, dst }),
  neuron: (add, id, bare = false) => wire.send("neuron", add ? { add, bare } : { add, id }),
  score: (src, dst) => wire.send("scores", { src, dst }),
  picked: showPicked,
  showStatus,
});

// -- messages

let lastMessage = 0, slow = false;
function receive(message: Message, arrays: Arrays): void {
  lastMessage = performance.now();
  if (slow) { slow = false; showStatus(""); }
  switch (message.kind) {
    case "hello": greet(message); break;
    case "data": takeData(message, arrays); break;
    case "graph": takeGraph(message as unknown as Graph & Message); break;
    case "settings": takeSettings(message); break;
    case "frame": takeFrame(message, arrays); break;
    case "regions":
      picture = { kind: "regions", size: message.size, low: message.low, high: message.high, best: arrays.best as Uint8Array, sure: arrays.sure as Uint8Array };
      if (arrays.x) points = { x: arrays.x as Float32Array, y: arrays.y as Float32Array, label: arrays.label as Uint8Array, train: 1e9 };
      pictureDirty = true; break;
    case "confusion": picture = { kind: "confusion", counts: message.counts, classes: data?.classes ?? [] }; pictureDirty = true; break;
    case "scatter": picture = { kind: "scatter", true: arrays.true as Float32Array, found: arrays.found as Float32Array, target: message.target }; pictureDirty = true; break;
    case "table": takeTable(message); break;
    case "scores": takeScores(message); break;
    case "born": graph.bornAt(message.id); graph.pick({ neuron: message.id }); break;
    case "status": showStatus(message.text); break;
    case "error": showError(message.text); stay(message.order); break;
    case "python": showText("Python code that trains the same graph", message.text); break;
    case "file": download(message.name, new Blob([arrays.content as Uint8Array<ArrayBuffer>])); break;
  }
}

function greet(message: Message): void {
  fill("set", Object.entries(message.sets as Record<string, string>));
  fill("solver", (message.solvers as string[]).map((name) => [name, SOLVER_NAMES[name] ?? name]));
  fill("pace", (message.paces as number[]).map((pace) => [String(pace), pace ? `${pace.toLocaleString("en")} per sec.` : "full speed"]));
  fill("graph-kind", (message.graphs as string[]).map((name) => [name, GRAPH_NAMES[name] ?? name]));
  fill("activation", (message.activations as string[]).map((name) => [name, name]));
  if (message.table?.name) takeTable(message.table);
  greeted = true;
  void reopen();
}
const SOLVER_NAMES: Record<string, string> = { lm: "lm", adam: "adam", stream: "stream (ekf)", "stream-adam": "stream (adam)" };
const GRAPH_NAMES: Record<string, string> = { mesh: "mesh", layered: "one layer", cascade: "cascade", columns: "self-loops", none: "no hidden" };

function fill(id: string, options: [string, string][]): void {
  select(id).replaceChildren(...options.map(([value, text]) => new Option(text, value)));
}

function takeData(message: Message, arrays: Arrays): void {
  const other = data === null || data.name !== message.name || data.title !== message.title;
  data = message;
  whole = false;
  $("alert").hidden = true; // the error was fixed or is obsolete
  points = arrays.label ? { x: arrays.x as Float32Array, y: arrays.y as Float32Array, label: arrays.label as Uint8Array, train: message.train } : null;
  sample = null;
  input("row").value = String(row = 0);
  if (other) graph.layout.held.clear();
  if (placed) { graph.layout.held = placed; placed = null; }
  curve.clear();
  showStatus("");
  curve.figure = message.figure;
  const options = select("set").options;
  if (message.name === "table" && ![...options].some((o) => o.value === "table")) select("set").add(new Option("", "table"));
  for (const option of options) if (option.value === "table" && table) option.text = table.name;
  select("set").value = message.name;
  input("seed").value = message.seed;
  $("table").hidden = message.name !== "table";
  $("notes").replaceChildren(...(message.notes as string[]).map((text) => Object.assign(document.createElement("li"), { textContent: text })));
  $("paper").textContent = message.paper ? `The paper: ${message.paper}.` : "";
  const classes = message.task === "classify";
  $("rate-name").textContent = message.streams ? "last 300" : classes ? "accuracy" : "";
  $("test-name").textContent = message.streams ? "" : classes ? "on test rows" : "R², test rows";
  $("accuracy").parentElement!.hidden = !classes;
  $("test").parentElement!.hidden = message.streams;
  input("row").max = String(message.train + message.test - 1);
  input("row").parentElement!.hidden = message.streams;
  $("picture-name").textContent = classes ? (message.flat ? "Decision regions" : "Predicted against true, test rows") : "Predicted against true, test rows";
  $("curve-name").textContent = classes ? "Accuracy and loss" : "R² and loss";
  const legend = classes && message.flat ? (message.classes as string[]) : [];
  $("legend").replaceChildren(...legend.map((name, k) => {
    const item = document.createElement("span"), dot = document.createElement("i");
    dot.style.background = CLASSES[k % CLASSES.length];
    dot.className = `mark${k % 4}`;
    item.append(dot, name);
    return item;
  }));
  graph.labels = { inputs: message.features, outputs: classes ? message.classes : [table?.target ?? ""] };
  pictureDirty = curveDirty = true;
}

function takeTable(message: Message): void {
  table = { name: message.name, text: message.text ?? (table?.name === message.name ? table?.text ?? "" : ""), target: message.target, impute: message.impute, drop: message.drop, columns: message.columns };
  fill("target", table.columns.map((name) => [name, name]));
  fill("drop", table.columns.map((name) => [name, name]));
  select("target").value = table.target;
  for (const option of select("drop").options) option.selected = table.drop.includes(option.value);
  input("impute").checked = table.impute;
  $("table").hidden = false;
}

function takeGraph(message: Graph & Message): void {
  const ticks = graph.net?.ticks;
  whole = false;
  if (graph.net) { showStatus(""); $("alert").hidden = true; } // the old messages were about the previous net
  graph.set(message);
  $("wait").hidden = true;
  button("undo").disabled = !message.undo;
  button("redo").disabled = !message.redo;
  const hidden = message.names.length - message.inputs - message.outputs - (message.bias ? 1 : 0), live = message.src.length - message.dead.length;
  $("size").textContent = `${hidden} hidden, ${message.src.length.toLocaleString("en")} edges${message.dead.length ? `, ${live.toLocaleString("en")} alive` : ""}`;
  keep("hidden", hidden);
  input("tick").max = String(message.ticks);
  if (ticks !== message.ticks && followsEnd) setTick(message.ticks); else setTick(Math.min(graph.tick, message.ticks));
  showPicked(graph.picked);
  if (showAbsent) ask();
}

function takeSettings(message: Message): void {
  settings = message;
  const run = button("run");
  run.textContent = message.running ? "Pause" : "Run";
  run.setAttribute("aria-pressed", String(message.running));
  select("solver").value = message.solver;
  keep("rate", message.rate); keep("budget", message.budget); keep("ticks", message.ticks);
  select("pace").value = String(message.pace);
  input("rate").disabled = !message.uses_rate;
  input("rate").title = message.uses_rate ? "" : "This solver determines its step sizes";
  $("unit").textContent = message.unit === "sample" ? "samples" : "epochs";
}
function stay(order?: string): void { // show the actual settings again after a refused order
  if (order === "sample") input("row").value = String(row);
  takeSettings(settings);
  if (data) { select("set").value = data.name; keep("seed", data.seed); }
}
function keep(id: string, value: number): void { if (document.activeElement !== $(id)) input(id).value = String(value); }

function takeFrame(message: Message, arrays: Arrays): void {
  if (graph.net && message.version === graph.net.version) {
    graph.take(arrays.weights as Float32Array, arrays.states as Float32Array);
    whole = true;
  }
  done = message.done;
  const text = (v: number | null, digits = 3): string => (v === null ? "–" : v.toFixed(digits));
  $("accuracy").textContent = data?.task === "regress" ? "" : text(message.rate);
  $("test").textContent = data?.streams ? "" : text(message.test);
  $("loss").textContent = message.loss === null ? "–" : number(message.loss);
  $("done").textContent = done.toLocaleString("en");
  curve.add(done, message.loss, message.rate, message.test);
  curveDirty = true;
}

function takeScores(message: Message): void {
  const edges = message.edges as Score[];
  if (message.src && message.dst) graph.scored(message.src, message.dst, edges[0]);
  else if (showAbsent && message.version === graph.net?.version) { graph.absent = edges.filter(([, , v]) => v !== 0); graph.dirty = true; }
}

function closed(reason: string): void {
  lost = true;
  settings.running = false;
  button("run").textContent = "Run";
  $("wait").hidden = graph.net !== null;
  $("wait").textContent = "";
  showError(reason, graph.net !== null);
  for (const item of document.querySelectorAll<HTMLButtonElement>("header .bar:first-of-type button, #left button[data-file], #python, #new, #add, #remove, #absent")) item.disabled = true;
}

// -- texts

function showStatus(text: string): void { $("status").textContent = text; }
function showError(text: string, link = false): void {
  $("alert-text").textContent = text;
  $("alert-more").replaceChildren();
  if (link) {
    const copy = Object.assign(document.createElement("button"), { textContent: "Link of the net", onclick: showLink });
    $("alert-more").append(copy);
  }
  $("alert").hidden = false;
}
function showText(title: string, text: string): void {
  $("text-title").textContent = title;
  $<HTMLTextAreaElement>("text").value = text;
  $<HTMLDialogElement>("text-box").showModal();
  $<HTMLTextAreaElement>("text").select();
}
function download(name: string, content: Blob): void {
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(content), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  showStatus(`${name} was saved`);
}

function showPicked(what: Picked): void {
  const hidden = what && "neuron" in what && what.neuron.startsWith("h");
  button("remove").disabled = lost || !what || ("neuron" in what && !hidden);
  $("activation-of").textContent = hidden ? `Activation of ${what.neuron}` : "Activation of all";
  const net = graph.net;
  if (!net) return;
  const first = net.inputs + (net.bias ? 1 : 0), at = hidden ? net.names.indexOf(what.neuron) - first : 0;
  const kinds = new Set(net.activations.slice(0, net.names.length - first - net.outputs));
  select("activation").value = hidden || kinds.size === 1 ? net.activations[at] : "";
  if (showAbsent) ask();
}

function ask(): void {
  asking = performance.now();
  const what = graph.picked;
  wire.send("scores", what && "neuron" in what ? { src: what.neuron } : {});
}

// -- the state of the page

let whole = false; // whether data, graph and weights, which arrive one after the other, belong together
let lastWhole: Record<string, unknown> | null = null;
function state(): Record<string, unknown> | null {
  const net = graph.net;
  if (!net || !data || !whole) return null;
  const first = net.inputs + (net.bias ? 1 : 0);
  const hidden = net.names.slice(first, net.names.length - net.outputs).map((id, k) => [id, net.activations[k]]);
  const source = data.name === "table" && table
    ? { table: { name: table.name, text: table.text.length <= MOST_LINK ? table.text : "", target: table.target, impute: table.impute, drop: table.drop } }
    : { set: data.name };
  return {
    v: 1, data: source, seed: data.seed, ticks: net.ticks, solver: settings.solver, rate: settings.rate, budget: settings.budget, pace: settings.pace,
    inputs: net.inputs, outputs: net.outputs, bias: net.bias, hidden, done,
    edges: net.src.map((s, k) => [s, net.dst[k], Number(graph.weights[k].toPrecision(8))]), place: Object.fromEntries(graph.layout.held),
  };
}
async function address(): Promise<string> {
  return `${location.origin}${location.pathname}#s=${await packed(state() ?? lastWhole)}`;
}
async function showLink(): Promise<void> {
  if (!state() && !lastWhole) { showStatus("There is no net yet."); return; }
  const large = data?.name === "table" && (table?.text.length ?? 0) > MOST_LINK;
  showText("Link to this net", await address());
  showStatus(large ? `${table!.name} is too large for a link: load the table before the link is opened` : "To open it in another meshnn play, copy the part that starts with # to the end of its address.");
}
let placed: Map<string, [number, number]> | null = null; // positions of the neurons of a link, until its net arrives
function takeState(found: any): void {
  const right = ([, at]: [string, unknown]): boolean => Array.isArray(at) && at.length === 2 && at.every(Number.isFinite);
  placed = new Map(Object.entries(found.place ?? {}).filter(right) as [string, [number, number]][]);
  if (found.data?.table?.text) table = { ...found.data.table, columns: [] };
  wire.send("restore", { state: found });
}

async function reopen(): Promise<void> {
  const hash = location.hash.startsWith("#s=") ? location.hash.slice(3) : "";
  if (hash) {
    history.replaceState(null, "", location.pathname); // otherwise a reload would restore it
    try { takeState(await unpacked(hash)); } catch { showError("The link is damaged. Copy the whole link again."); }
    return;
  }
  const kept = sessionStorage.getItem(KEY);
  if (kept) try { takeState(JSON.parse(kept)); } catch { sessionStorage.removeItem(KEY); }
}
function keepState(): void {
  const now = state();
  if (!now || lost) return;
  lastWhole = now;
  try { sessionStorage.setItem(KEY, JSON.stringify(now)); } catch { /* storage is full: a reload starts with a new net */ }
}

// -- ticks

function setTick(at: number): void {
  const last = graph.net?.ticks ?? 0;
  graph.tick = Math.min(Math.max(at, 0), last);
  graph.dirty = true;
  input("tick").value = String(graph.tick);
  $("tick-text").textContent = `tick ${Math.floor(graph.tick)} of ${last}`;
}
function playTicks(on: boolean): void {
  playing = on;
  button("tick-play").setAttribute("aria-pressed", String(on));
  if (on && graph.tick >= (graph.net?.ticks ?? 0)) setTick(0);
}
function stepTick(by: number): void {
  playTicks(false);
  const last = graph.net?.ticks ?? 0, next = Math.floor(graph.tick + 1e-6) + by;
  setTick(by > 0 && next > last ? 0 : next);
  followsEnd = graph.tick >= last;
}

// -- user actions

const press = (id: string, act: () => void): void => button(id).addEventListener("click", act);
const run = (): void => wire.send("run", { on: !settings.running });
press("run", run);
press("step", () => wire.send("step"));
for (const name of ["grow", "prune", "undo", "redo"]) press(name, () => wire.send(name));
const newWeights = (): void => { curve.clear(); wire.send("reset", { seed: Math.floor(Math.random() * 2 ** 31) }); };
press("reset", newWeights);
press("new", () => { curve.clear(); graph.layout.held.clear(); wire.send("new", { graph: select("graph-kind").value, hidden: Number(input("hidden").value) }); });
press("add", () => wire.send("neuron", { add: true, bare: false }));
const remove = (): void => {
  const what = graph.picked;
  if (!what) return;
  if ("neuron" in what) wire.send("neuron", { add: false, id: what.neuron });
  else wire.send("edge", { add: false, src: what.edge[0], dst: what.edge[1] });
};
press("remove", remove);
const toggleMove = (): void => { graph.moving = !graph.moving; button("move").setAttribute("aria-pressed", String(graph.moving)); };
press("move", toggleMove);
const toggleAbsent = (): void => {
  showAbsent = !showAbsent;
  button("absent").setAttribute("aria-pressed", String(showAbsent));
  graph.absent = []; graph.dirty = true;
  showStatus("");
  if (showAbsent) { ask(); showStatus("Dotted: the absent edges with the largest gradients, or all those of the selected neuron. Click one to add it."); }
};
press("absent", toggleAbsent);
press("tick-play", () => { followsEnd = false; playTicks(!playing); });
press("tick-step", () => stepTick(1));
input("tick").addEventListener("input", () => { playTicks(false); setTick(Number(input("tick").value)); followsEnd = graph.tick >= (graph.net?.ticks ?? 0); });
select("set").addEventListener("change", () => wire.send("data", { name: select("set").value, seed: Number(input("seed").value) }));
input("seed").addEventListener("change", () => data && wire.send("data", { name: data.name, seed: Number(input("seed").value) }));
select("solver").addEventListener("change", () => { curve.clear(); wire.send("set", { solver: select("solver").value }); });
select("pace").addEventListener("change", () => wire.send("set", { pace: Number(select("pace").value) }));
for (const name of ["rate", "ticks", "budget"]) input(name).addEventListener("change", () => wire.send("set", { [name]: Number(input(name).value) }));
select("activation").addEventListener("change", () => {
  const what = graph.picked, one = what && "neuron" in what && what.neuron.startsWith("h");
  wire.send("activation", { id: one ? what.neuron : "*", name: select("activation").value });
});
input("row").addEventListener("change", () => {
  const asked = Number(input("row").value);
  wire.send("sample", { index: asked });
  if (!Number.isInteger(asked) || asked < 0 || asked > Number(input("row").max)) return; // the process refuses it
  row = asked;
  sample = null; pictureDirty = true;
});
const chosenTable = () => ({ target: select("target").value, impute: input("impute").checked, drop: [...select("drop").selectedOptions].map((o) => o.value) });
for (const id of ["target", "drop", "impute"]) $(id).addEventListener("change", () => wire.send("table", chosenTable()));
async function readFile(file: File): Promise<void> {
  if (file.size > 5_000_000) { showError(`${file.name} has ${file.size.toLocaleString("en")} bytes, expected at most 5,000,000; use fewer rows, or train with meshnn fit ${file.name}`); return; }
  const text = await file.text();
  table = { name: file.name, text, target: "", impute: false, drop: [], columns: [] };
  $("alert").hidden = true;
  wire.send("csv", { name: file.name, text });
}
input("csv").addEventListener("change", () => { const file = input("csv").files?.[0]; if (file) void readFile(file); input("csv").value = ""; });
document.addEventListener("dragover", (e) => e.preventDefault());
document.addEventListener("drop", (e) => { e.preventDefault(); const file = e.dataTransfer?.files[0]; if (file) void readFile(file); });
for (const item of document.querySelectorAll<HTMLButtonElement>("[data-file]")) item.addEventListener("click", () => wire.send("export", { what: item.dataset.file }));
press("python", () => wire.send("python"));
press("link", () => void showLink());
press("png", async () => { const blob = await graph.png(); if (blob) download("net.png", blob); });
press("svg", () => download("net.svg", new Blob([graph.svg()], { type: "image/svg+xml" })));
press("copy", async () => {
  const text = $<HTMLTextAreaElement>("text");
  try { await navigator.clipboard.writeText(text.value); } catch { text.select(); document.execCommand("copy"); }
  button("copy").textContent = "Copied";
  setTimeout(() => (button("copy").textContent = "Copy"), 1500);
});
press("alert-close", () => ($("alert").hidden = true));
const help = (): void => $<HTMLDialogElement>("help-box").showModal();
press("help", help);
const theme = (): void => {
  const dark = getComputedStyle(document.documentElement).colorScheme === "dark";
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("meshnn-theme", dark ? "light" : "dark"); } catch { /* storage is not available */ }
  graph.repaint();
  pictureDirty = curveDirty = true;
};
press("theme", theme);
try { const kept = localStorage.getItem("meshnn-theme"); if (kept) document.documentElement.dataset.theme = kept; } catch { /* use the theme of the system */ }
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { graph.repaint(); pictureDirty = curveDirty = true; });

$("picture").addEventListener("click", (e) => {
  if (picture?.kind !== "regions") return;
  const box = $("picture").getBoundingClientRect(), { low, high } = picture;
  sample = [low[0] + ((e.clientX - box.left) / box.width) * (high[0] - low[0]), high[1] - ((e.clientY - box.top) / box.height) * (high[1] - low[1])];
  wire.send("sample", { point: sample });
  pictureDirty = true;
});

const KEYS: Record<string, () => void> = {
  " ": run, s: () => wire.send("step"), g: () => wire.send("grow"), p: () => wire.send("prune"), z: () => wire.send("undo"), Z: () => wire.send("redo"),
  a: toggleAbsent, r: newWeights, m: toggleMove, d: theme, "?": help, t: () => { followsEnd = false; playTicks(!playing); }, ArrowRight: () => stepTick(1), ArrowLeft: () => stepTick(-1),
  n: () => graph.walk(1), b: () => graph.walk(-1), e: () => graph.begin(), Enter: () => graph.end(), Delete: remove, Backspace: remove, "+": () => wire.send("neuron", { add: true, bare: false }),
  Escape: () => graph.pick(null),
};
document.addEventListener("keydown", (e) => {
  const on = e.target as HTMLElement;
  if (e.ctrlKey || e.metaKey || e.altKey || !greeted || document.querySelector("dialog[open]")) return;
  if (on.closest("select, textarea, input:not([type=range], [type=checkbox])") || (on.closest("button, input") && (e.key === " " || e.key === "Enter")) || (on.closest("input") && e.key.startsWith("Arrow"))) return;
  const act = KEYS[e.key];
  if (act) { e.preventDefault(); act(); }
});
addEventListener("hashchange", () => void reopen());
addEventListener("pagehide", keepState);
new ResizeObserver(() => (pictureDirty = curveDirty = true)).observe($("right"));

// -- animation: 60 frames per second

const frames: number[] = [];
let before = 0;
function frame(now: number): void {
  requestAnimationFrame(frame);
  frames.push(now - before);
  if (frames.length > 240) frames.shift();
  if (playing && graph.net) {
    const next = graph.tick + Math.min((now - before) / 1000, 0.1) * 0.9;
    if (next >= graph.net.ticks) { setTick(graph.net.ticks); pause ||= now; if (now - pause > 900) { pause = 0; setTick(0); } } else setTick(next);
  }
  before = now;
  if (settings.running && !slow && settings.pace !== 1 && now - lastMessage > 2000) { slow = true; showStatus("working … the first run compiles code, which takes some seconds"); }
  if (showAbsent && settings.running && now - asking > 700) ask();
  graph.frame(now);
  if (pictureDirty && picture) {
    pictureDirty = false;
    const canvas = $<HTMLCanvasElement>("picture");
    if (picture.kind === "regions") drawRegions(canvas, picture, points, sample);
    else if (picture.kind === "confusion") drawConfusion(canvas, picture.counts, picture.classes);
    else drawScatter(canvas, picture.true, picture.found, picture.target);
  }
  if (curveDirty && now - drawn > 90) { curveDirty = false; drawn = now; curve.draw($<HTMLCanvasElement>("curve")); }
  if (now - saved > 1500) { saved = now; keepState(); }
}
let pause = 0, drawn = 0;
requestAnimationFrame(frame);

// For tests: positions of neurons, and frames per second.
Object.assign(window, {
  meshnnPlay: {
    where: (id: string) => { const at = graph.where(id), box = $("graph").getBoundingClientRect(); return at && [at[0] + box.left, at[1] + box.top]; },
    edges: () => graph.net?.src.map((s, k) => [graph.net!.names[s], graph.net!.names[graph.net!.dst[k]], graph.weights[k]]),
    names: () => graph.net?.names, absent: () => graph.absent, tick: () => graph.tick, state, address, packed, done: () => done, frames: () => frames.length,
    fps: () => { const some = frames.slice(1); return some.length / (some.reduce((a, b) => a + b, 0) / 1000); },
    slowest: () => Math.max(...frames.slice(1)), forget: () => (frames.length = 0),
  },
});
