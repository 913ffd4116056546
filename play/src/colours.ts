// Colours of Okabe and Ito, which colour-blind people can distinguish; classes also differ in shape.
export const CLASSES = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#b3a500", "#7a5195", "#8c6d46", "#6b7280"];
export type Theme = { dark: boolean; ground: string; card: string; ink: string; quiet: string; line: string; plus: string; minus: string };

export function themeNow(): Theme {
  const chosen = document.documentElement.dataset.theme;
  const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  return dark
    ? { dark, ground: "#12161b", card: "#1a2027", ink: "#e8edf2", quiet: "#8a97a5", line: "#3b4652", plus: "#4aaee8", minus: "#f0a830" }
    : { dark, ground: "#f6f7f9", card: "#ffffff", ink: "#17202a", quiet: "#66727f", line: "#c3cad2", plus: "#0072b2", minus: "#d98200" };
}

export function rgb(hex: string): [number, number, number] {
  const n = parseInt(hex.slice(1), 16);
  return [n >> 16, (n >> 8) & 255, n & 255];
}

export function mixed(from: string, to: string, share: number): string {
  const a = rgb(from), b = rgb(to);
  return `rgb(${a.map((v, k) => Math.round(v + (b[k] - v) * share)).join(",")})`;
}
