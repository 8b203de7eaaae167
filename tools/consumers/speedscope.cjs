#!/usr/bin/env node
// Opens a profile in speedscope, without network, and prints what speedscope made of it: the file
// that it saves ("Export", Ctrl-S), which is JSON with the calls of each thread in their order.
//
//   speedscope.cjs FILE [PICTURE.png]
//
// Reads all that speedscope imports: its own JSON, folded stacks, pprof, callgrind. The app comes
// from the npm package, in $PTRAIL_CONSUMERS or target/consumers, and is served from this process
// on 127.0.0.1. Not part of the tests that always run; needs besides:
//
//   apt-get install chromium               (or another one named by $CHROMIUM)
//   npm install --prefix target/consumers playwright-core speedscope@1.25.0
'use strict';

const fs = require('fs');
const http = require('http');
const path = require('path');
const { createRequire } = require('module');

const root = path.resolve(process.env.PTRAIL_CONSUMERS || path.join(__dirname, '../../target/consumers'));
const site = path.join(root, 'node_modules/speedscope/dist/release');
const TYPES = {
  '.html': 'text/html',
  '.js': 'text/javascript',
  '.css': 'text/css',
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

/** Loads the file and returns what speedscope saves. */
async function saved(page, address, file) {
  const failure = new Promise((_, reject) => {
    page.on('pageerror', reject);
    page.on('dialog', (dialog) => {
      reject(new Error(`speedscope says: ${dialog.message()}`));
      dialog.dismiss();
    });
  });
  const success = (async () => {
    await page.goto(address);
    const input = page.locator('input[type=file]');
    await input.waitFor({ state: 'attached' });
    const title = await page.title();
    await input.setInputFiles(file);
    await page.waitForFunction((before) => document.title !== before, title, { timeout: 120000 });
    const download = page.waitForEvent('download', { timeout: 120000 });
    await page.keyboard.press('Control+s');
    return fs.readFileSync(await (await download).path(), 'utf8');
  })();
  return Promise.race([success, failure]);
}

async function main() {
  const [file, picture] = process.argv.slice(2);
  if (!file) throw new Error('usage: speedscope.cjs FILE [PICTURE.png]');
  const { chromium } = createRequire(path.join(root, 'package.json'))('playwright-core');
  const server = http.createServer(serve);
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM || '/usr/bin/chromium',
    args: ['--no-sandbox', '--use-gl=angle', '--use-angle=swiftshader', '--enable-unsafe-swiftshader'],
  });
  try {
    const page = await browser.newPage({ viewport: { width: 1600, height: 900 } });
    const text = await saved(page, `http://127.0.0.1:${server.address().port}/`, file);
    if (picture) await page.screenshot({ path: picture });
    await new Promise((resolve) => process.stdout.write(text, resolve));
  } finally {
    await browser.close();
    server.close();
  }
}

main().catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
