// node shoot.mjs DATA OUT: bundles the page, serves it on the loopback interface, and takes a picture of each dashboard.
import { build } from 'esbuild';
import { createServer } from 'node:http';
import { mkdirSync, readFileSync } from 'node:fs';
import puppeteer from 'puppeteer-core';

const [data, out] = process.argv.slice(2);
const boards = JSON.parse(readFileSync(data, 'utf8'));
for (const { board } of Object.values(boards)) { // Grafana moves up what stands below a collapsed row
  let hidden = 0;
  board.panels.sort((a, b) => a.gridPos.y - b.gridPos.y || a.gridPos.x - b.gridPos.x);
  const places = board.panels.map(({ gridPos }) => gridPos.y);
  board.panels.forEach((panel, place) => {
    panel.gridPos.y -= hidden;
    if (panel.type === 'row' && panel.collapsed && place + 1 < places.length) hidden += places[place + 1] - places[place] - 1;
  });
}
const { outputFiles } = await build({
  entryPoints: ['page.jsx'], bundle: true, write: false, format: 'esm', jsx: 'automatic', logLevel: 'error', outdir: 'out',
  define: { 'process.env.NODE_ENV': '"production"', global: 'window' }, loader: { '.svg': 'dataurl', '.css': 'css', '.ttf': 'dataurl', '.woff2': 'dataurl' },
});
const script = outputFiles.find(({ path }) => path.endsWith('.js')).text;
const styles = ['uplot/dist/uPlot.min.css', '@grafana/react-data-grid/lib/styles.css']
  .map((path) => readFileSync(`node_modules/${path}`, 'utf8')).join('\n');
const html = `<!doctype html><meta charset="utf-8"><style>${styles} body{margin:0}</style><div id="root"></div><script type="module" src="/page.js"></script>`;
const server = createServer((request, answer) => {
  const path = new URL(request.url, 'http://x').pathname;
  const board = path.startsWith('/data/') && boards[path.slice(6)];
  answer.setHeader('content-type', path === '/page.js' ? 'text/javascript' : board ? 'application/json' : 'text/html');
  answer.end(path === '/page.js' ? script : board ? JSON.stringify(board) : html);
}).listen(0, '127.0.0.1');
await new Promise((resolve) => server.once('listening', resolve));
mkdirSync(out, { recursive: true });
const browser = await puppeteer.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'], protocolTimeout: 300000 });
let failed = false;
for (const name of Object.keys(boards)) {
  await drawn(name).catch(() => drawn(name)); // a browser on a busy machine closes a page now and then
}
await browser.close();
server.close();
process.exit(failed ? 1 : 0);

async function drawn(name) {
  const page = await browser.newPage();
  page.on('pageerror', (error) => { failed = true; console.error(name, error.message); });
  const rows = Math.max(...boards[name].board.panels.map(({ gridPos }) => gridPos.y + gridPos.h));
  await page.setViewport({ width: 1600, height: rows * 38 + 60 }); // tables draw what is in view
  await page.goto(`http://127.0.0.1:${server.address().port}/?board=${name}`);
  await page.waitForFunction('window.done', { timeout: 180000 });
  await page.screenshot({ path: `${out}/${name}.png` }); // a full page changes the size, and tables are drawn anew
  await page.close();
  console.log(`${out}/${name}.png`);
}
