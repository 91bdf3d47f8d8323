// Renders pages of the site in headless Chromium and reports the faults of each look.
// node site.mjs < {"browser": PATH, "pages": [URL], "widths": [N], "schemes": [NAME]}; one line of
// JSON for each look.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const axeSource = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const { browser: executablePath, pages, widths, schemes } = JSON.parse(readFileSync(0, "utf8"));
const browser = await chromium.launch({ executablePath });

async function look(url, width, scheme) {
  const page = await browser.newPage({ viewport: { width, height: 900 }, colorScheme: scheme });
  const foreign = [];
  page.on("request", (request) => {
    if (!request.url().startsWith("file:") && !request.url().startsWith("data:")) foreign.push(request.url());
  });
  await page.goto(url, { waitUntil: "load", timeout: 120_000 });
  const wider = await page.evaluate(
    () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
  );
  const background = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await page.evaluate(axeSource);
  const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  await page.close();
  const faults = found.violations.map(({ id, impact, help, nodes }) => ({
    id, impact, help, count: nodes.length, first: nodes[0].html.slice(0, 200),
    why: nodes[0].failureSummary,
  }));
  return { url, width, scheme, wider, background, foreign, faults, passes: found.passes.length };
}

try {
  for (const url of pages)
    for (const width of widths)
      for (const scheme of schemes) console.log(JSON.stringify(await look(url, width, scheme)));
} finally {
  await browser.close();
}
