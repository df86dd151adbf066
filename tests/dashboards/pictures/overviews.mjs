// node overviews.mjs PAGES OUT: takes pictures of pages at `/` as a wide light and as a narrow dark screen show them.
import { readdirSync } from 'node:fs';
import { resolve } from 'node:path';
import puppeteer from 'puppeteer-core';

const [pages, out] = process.argv.slice(2);
const LONGEST = 1800; // pixels: what fits on a page of documentation
const browser = await puppeteer.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
let failed = false;
for (const name of readdirSync(pages).filter((each) => each.endsWith('.html'))) {
  for (const [width, scheme] of [[1200, 'light'], [390, 'dark']]) {
    const page = await browser.newPage();
    await page.setViewport({ width, height: 800 });
    await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }]);
    await page.goto(`file://${resolve(pages, name)}`);
    if (await page.evaluate('document.documentElement.scrollWidth > document.documentElement.clientWidth')) {
      failed = true;
      console.error(name, `is wider than ${width} px`);
    }
    const path = `${out}/overview-${name.replace('.html', '')}-${width}.png`;
    const height = await page.evaluate('document.documentElement.scrollHeight');
    await page.screenshot({ path, clip: { x: 0, y: 0, width, height: Math.min(height, LONGEST) } });
    await page.close();
    console.log(path);
  }
}
await browser.close();
process.exit(failed ? 1 : 0);
