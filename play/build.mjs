// Builds the page into the package, or into the folder that is named: the same bytes from the same sources, everywhere.
import { build } from "esbuild";
import { copyFileSync, mkdirSync, readdirSync, statSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const out = resolve(process.argv[2] ?? join(here, "../src/meshnn/play/assets"));
mkdirSync(out, { recursive: true });
const common = { absWorkingDir: here, bundle: true, minify: true, charset: "utf8", legalComments: "none", logLevel: "warning" };
await build({ ...common, entryPoints: ["src/app.ts"], outfile: join(out, "app.js"), format: "esm", target: "es2022",
  banner: { js: "// Built by make play-assets from play/. With d3-force, Copyright 2010-2021 Mike Bostock, ISC licence." } });
await build({ ...common, entryPoints: ["src/style.css"], outfile: join(out, "style.css") });
copyFileSync(join(here, "src/index.html"), join(out, "index.html"));
const bytes = readdirSync(out).reduce((sum, name) => sum + statSync(join(out, name)).size, 0);
console.log(`${bytes} bytes in ${out}`);
if (bytes > 200_000) throw new Error("the page is larger than 200 kB");
