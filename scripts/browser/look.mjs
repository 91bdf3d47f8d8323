// Renders pages in headless Chromium and reports the faults of each look.
// node look.mjs < {"browser": PATH, "looks": [...]}; one line of JSON for each look.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const axeSource = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const { browser: executablePath, looks } = JSON.parse(readFileSync(0, "utf8"));
const browser = await chromium.launch({ executablePath });

async function look({ url, scheme, width, height, paper, picture }) {
  const page = await browser.newPage({ viewport: { width, height }, colorScheme: scheme });
  const asked = [];
  page.on("request", (request) => asked.push(request.url()));
  const errors = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  await page.emulateMedia({ media: paper ? "print" : "screen" });
  const begun = performance.now();
  await page.goto(url, { waitUntil: "load", timeout: 120_000 });
  // Two frames later the browser has drawn the visible part.
  await page.evaluate(
    () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))),
  );
  const drawnMs = Math.round(performance.now() - begun);
  if (picture) await page.screenshot({ path: picture });
  const printing = performance.now();
  const paperBytes = paper ? (await page.pdf({ format: "A4", timeout: 120_000 })).length : 0;
  const printedMs = paper ? Math.round(performance.now() - printing) : 0;
  const layout = await page.evaluate(() => ({
    wider: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    columns: getComputedStyle(document.querySelector(".tiles")).gridTemplateColumns.split(" ").length,
    deadLinks: [...document.querySelectorAll('a[href^="#"]')].filter(
      (link) => !document.getElementById(link.hash.slice(1)),
    ).length,
    links: document.querySelectorAll('a[href^="#"]').length,
  }));
  // Open all details, since axe ignores folded content.
  await page.evaluate(() => document.querySelectorAll("details").forEach((one) => (one.open = true)));
  await page.evaluate(axeSource);
  const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  await page.close();
  const faults = found.violations.map(({ id, impact, help, nodes }) => ({
    id, impact, help, count: nodes.length, first: nodes[0].html.slice(0, 200),
    why: nodes[0].failureSummary,
  }));
  const foreign = asked.filter((one) => one !== url);
  return { drawnMs, printedMs, paperBytes, ...layout, faults, passes: found.passes.length, foreign, errors };
}

try {
  for (const one of looks) console.log(JSON.stringify(await look(one)));
} finally {
  await browser.close();
}
