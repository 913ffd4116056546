// Two painters with the same functions: a canvas, at 60 frames per second, and an SVG file.
export type Curve = [number, number, number, number, number, number]; // from, control point, to
export interface Painter {
  curves(list: Curve[], colour: string, width: number, alpha: number, dash?: number[]): void;
  loops(list: [number, number, number][], colour: string, width: number, alpha: number, dash?: number[]): void;
  heads(list: [number, number, number][], size: number, colour: string, alpha: number): void; // x, y, angle
  dots(list: [number, number, number][], colour: string): void;
  disc(x: number, y: number, r: number, fill: string, line: string, width: number, square?: boolean): void;
  text(x: number, y: number, words: string, colour: string, size: number, anchor: "start" | "middle" | "end"): void;
}

export class CanvasPainter implements Painter {
  constructor(private c: CanvasRenderingContext2D) {}

  private pen(colour: string, width: number, alpha: number, dash: number[] = []): void {
    this.c.strokeStyle = colour; this.c.lineWidth = width; this.c.globalAlpha = alpha; this.c.setLineDash(dash); this.c.beginPath();
  }
  private lift(): void { this.c.stroke(); this.c.globalAlpha = 1; this.c.setLineDash([]); }

  curves(list: Curve[], colour: string, width: number, alpha: number, dash?: number[]): void {
    this.pen(colour, width, alpha, dash);
    for (const [x0, y0, cx, cy, x1, y1] of list) { this.c.moveTo(x0, y0); this.c.quadraticCurveTo(cx, cy, x1, y1); }
    this.lift();
  }
  loops(list: [number, number, number][], colour: string, width: number, alpha: number, dash?: number[]): void {
    this.pen(colour, width, alpha, dash);
    for (const [x, y, r] of list) { this.c.moveTo(x + r, y); this.c.arc(x, y, r, 0, 2 * Math.PI); }
    this.lift();
  }
  heads(list: [number, number, number][], size: number, colour: string, alpha: number): void {
    this.c.fillStyle = colour; this.c.globalAlpha = alpha; this.c.beginPath();
    for (const [x, y, a] of list) {
      this.c.moveTo(x, y);
      this.c.lineTo(x - size * Math.cos(a - 0.42), y - size * Math.sin(a - 0.42));
      this.c.lineTo(x - size * Math.cos(a + 0.42), y - size * Math.sin(a + 0.42));
      this.c.closePath();
    }
    this.c.fill(); this.c.globalAlpha = 1;
  }
  dots(list: [number, number, number][], colour: string): void {
    this.c.fillStyle = colour; this.c.beginPath();
    for (const [x, y, r] of list) { this.c.moveTo(x + r, y); this.c.arc(x, y, r, 0, 2 * Math.PI); }
    this.c.fill();
  }
  disc(x: number, y: number, r: number, fill: string, line: string, width: number, square = false): void {
    this.c.beginPath();
    if (square) this.c.roundRect(x - r, y - r, 2 * r, 2 * r, r * 0.35); else this.c.arc(x, y, r, 0, 2 * Math.PI);
    this.c.fillStyle = fill; this.c.fill();
    this.c.strokeStyle = line; this.c.lineWidth = width; this.c.stroke();
  }
  text(x: number, y: number, words: string, colour: string, size: number, anchor: "start" | "middle" | "end"): void {
    this.c.font = `${size}px system-ui, sans-serif`;
    this.c.fillStyle = colour; this.c.textBaseline = "middle"; this.c.textAlign = anchor === "middle" ? "center" : anchor;
    this.c.fillText(words, x, y);
  }
}

const f = (v: number): string => v.toFixed(1).replace(/\.0$/, "");
const escaped = (text: string): string => text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);

export class SvgPainter implements Painter {
  private parts: string[] = [];
  constructor(private width: number, private height: number, private ground: string) {}

  private path(d: string, colour: string, width: number, alpha: number, dash?: number[]): void {
    const dashed = dash?.length ? ` stroke-dasharray="${dash.join(" ")}"` : "";
    if (d) this.parts.push(`<path d="${d}" fill="none" stroke="${colour}" stroke-width="${f(width)}" opacity="${alpha.toFixed(2)}"${dashed}/>`);
  }
  curves(list: Curve[], colour: string, width: number, alpha: number, dash?: number[]): void {
    this.path(list.map((c) => `M${f(c[0])} ${f(c[1])}Q${f(c[2])} ${f(c[3])} ${f(c[4])} ${f(c[5])}`).join(""), colour, width, alpha, dash);
  }
  loops(list: [number, number, number][], colour: string, width: number, alpha: number, dash?: number[]): void {
    const one = ([x, y, r]: [number, number, number]) => `M${f(x + r)} ${f(y)}A${f(r)} ${f(r)} 0 1 1 ${f(x - r)} ${f(y)}A${f(r)} ${f(r)} 0 1 1 ${f(x + r)} ${f(y)}`;
    this.path(list.map(one).join(""), colour, width, alpha, dash);
  }
  heads(list: [number, number, number][], size: number, colour: string, alpha: number): void {
    const at = (x: number, y: number, a: number) => `L${f(x - size * Math.cos(a))} ${f(y - size * Math.sin(a))}`;
    const d = list.map(([x, y, a]) => `M${f(x)} ${f(y)}${at(x, y, a - 0.42)}${at(x, y, a + 0.42)}Z`).join("");
    if (d) this.parts.push(`<path d="${d}" fill="${colour}" opacity="${alpha.toFixed(2)}"/>`);
  }
  dots(list: [number, number, number][], colour: string): void {
    for (const [x, y, r] of list) this.parts.push(`<circle cx="${f(x)}" cy="${f(y)}" r="${f(r)}" fill="${colour}"/>`);
  }
  disc(x: number, y: number, r: number, fill: string, line: string, width: number, square = false): void {
    const look = `fill="${fill}" stroke="${line}" stroke-width="${f(width)}"`;
    this.parts.push(square ? `<rect x="${f(x - r)}" y="${f(y - r)}" width="${f(2 * r)}" height="${f(2 * r)}" rx="${f(r * 0.35)}" ${look}/>`
      : `<circle cx="${f(x)}" cy="${f(y)}" r="${f(r)}" ${look}/>`);
  }
  text(x: number, y: number, words: string, colour: string, size: number, anchor: "start" | "middle" | "end"): void {
    this.parts.push(`<text x="${f(x)}" y="${f(y)}" fill="${colour}" font-size="${f(size)}" text-anchor="${anchor}" dominant-baseline="central">${escaped(words)}</text>`);
  }
  done(): string {
    return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${f(this.width)} ${f(this.height)}" font-family="sans-serif"><rect width="100%" height="100%" fill="${this.ground}"/>${this.parts.join("\n")}</svg>\n`;
  }
}
