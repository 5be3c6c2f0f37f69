// SPDX-License-Identifier: Apache-2.0
// The driver of a JavaScript context: evaluates code in this process and reports on
// descriptor 3.  docs/design/code-drivers.md describes the lines.
//
// V8's REPL mode, which the inspector offers, does the work: bindings of one execution are
// visible in the next and can be declared again, await works at the top level, and the value
// of the last statement is returned.  It knows no import, so translate() replaces it.
(function (require, load) {
'use strict';

const fs = require('fs');
const inspector = require('inspector');
const module_ = require('module');
const net = require('net');
const path = require('path');
const url = require('url');
const util = require('util');
const vm = require('vm');

const CHANNEL = 3;
const LINE_MAX = 32 << 20;
const PIECE_MAX = 8 << 10; // of text in one line
const TEXT_MAX = 1 << 20;
const INTEGER_MAX = 2 ** 63;
const INTERRUPTED = 'ERR_SCRIPT_EXECUTION_INTERRUPTED';
const session = new inspector.Session();

const state = {count: 0, running: null, exit: process.exit, require: globalThis.require, held: ''};

// --- Lines of the channel ----------------------------------------------------------------------

// Goes with the next line: the service and its client wake up once for both.
function hold(message) {
    state.held += JSON.stringify(message) + '\n';
}

function send(message) {
    let data = Buffer.from(state.held + JSON.stringify(message) + '\n');
    state.held = '';
    while (data.length) {
        try {
            data = data.subarray(fs.writeSync(CHANNEL, data));
        } catch (error) {
            if (error.code !== 'EAGAIN')
                process.reallyExit(0); // the service has ended
            Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
        }
    }
}

// Text without lone surrogates.
function wellFormed(text) {
    return Buffer.from(String(text)).toString();
}

function sendText(type, text) {
    for (let at = 0; at < text.length;) {
        let end = Math.min(at + PIECE_MAX, text.length);
        const last = text.charCodeAt(end - 1);
        if (end < text.length && last >= 0xD800 && last < 0xDC00)
            end++;
        send({type, text: wellFormed(text.slice(at, end))});
        at = end;
    }
}

function replaceStream(stream, type) {
    stream.write = (data, encoding, done) => {
        if (typeof encoding === 'function')
            [encoding, done] = [undefined, encoding];
        if (state.running)
            sendText(type, typeof data === 'string' ? data : Buffer.from(data).toString());
        if (done)
            process.nextTick(done);
        return true;
    };
}

// --- Results -----------------------------------------------------------------------------------

const METHODS = {_toHtml: 'text/html', _toSvg: 'image/svg+xml', _toPng: 'image/png',
    _toJpeg: 'image/jpeg', _toMarkdown: 'text/markdown'};

function isPlain(value) {
    if (Array.isArray(value))
        return true;
    const prototype = typeof value === 'object' && value !== null && Object.getPrototypeOf(value);
    return prototype === Object.prototype || prototype === null;
}

// A value that JSON.stringify() writes in one way only; throws for a cycle or a BigInt.
function toJSON(value) {
    const text = JSON.stringify(value, (key, item) => {
        if (typeof item === 'string')
            return wellFormed(item);
        return typeof item === 'number' && Math.abs(item) >= INTEGER_MAX ? null : item;
    });
    return text === undefined || text.length > LINE_MAX / 8 ? undefined : JSON.parse(text);
}

function encodePart(item) {
    return item instanceof Uint8Array ? Buffer.from(item).toString('base64') :
        typeof item === 'string' ? wellFormed(item) : toJSON(item);
}

function textOf(value) {
    const text = wellFormed(util.inspect(value));
    return text.length <= TEXT_MAX ? text :
        `${text.slice(0, TEXT_MAX)}... (${text.length - TEXT_MAX} more characters)`;
}

function partsOf(value) {
    const parts = {'text/plain': textOf(value)};
    if (isPlain(value)) {
        try {
            parts['application/json'] = toJSON(value);
        } catch { /* text only */ }
    }
    if (typeof value !== 'object' || value === null)
        return parts;
    for (const [name, mime] of Object.entries(METHODS))
        if (typeof value[name] === 'function')
            parts[mime] = encodePart(value[name]());
    const show = value[Symbol.for('Jupyter.display')] || value._toMime;
    if (typeof show === 'function')
        for (const [mime, item] of Object.entries(show.call(value)))
            parts[mime] = encodePart(item);
    return parts;
}

function emit(parts, main) {
    let size = 0;
    for (const [mime, item] of Object.entries(parts)) {
        const length = JSON.stringify(item === undefined ? null : item).length;
        if (size + length > LINE_MAX / 4) {
            delete parts[mime];
            parts['text/plain'] = `(${mime} left out: larger than ${LINE_MAX >> 22} MiB)`;
        } else {
            size += length;
        }
    }
    (main ? hold : send)({type: 'result', data: parts, main}); // "done" follows the main one
}

function display(value, {raw = false} = {}) {
    if (!raw)
        return emit(partsOf(value), false);
    const parts = {};
    for (const [mime, item] of Object.entries(value))
        parts[mime] = encodePart(item);
    emit(parts, false);
}

// --- Errors ------------------------------------------------------------------------------------

class ProcessExit extends Error {
    constructor(code) {
        super(String(code));
        this.name = 'ProcessExit';
    }
}

// The stack down to the last line of the code.
function stackOf(error) {
    const lines = String(error.stack).split('\n');
    const isFrame = (line) => /^\s+at /.test(line);
    let end = lines.findIndex((line) => isFrame(line) &&
        /node:inspector|node:vm|cay:core|node:internal\/process\/task_queues/.test(line));
    if (end < 0)
        end = lines.length;
    return lines.slice(0, end).join('\n');
}

function syntaxStack(error, details, code, name) {
    const lines = code.split('\n');
    const at = Math.min(details.lineNumber, lines.length - 1);
    const column = at === details.lineNumber ? details.columnNumber : lines[at].length;
    return `${name}:${at + 1}\n${lines[at]}\n${' '.repeat(column)}^\n\n${error}`;
}

// Whether V8 refused the code, and nothing of it ran.
function isRefused(value, details) {
    return value instanceof SyntaxError && details?.scriptId && details.lineNumber >= 0 &&
        !/\bat .*cell-/.test(value.stack);
}

function describe(value, details, code, name) {
    if (!util.types.isNativeError(value) && !(value instanceof Error)) {
        const text = textOf(value);
        return {type: 'error', name: 'Error', value: text, traceback: `Uncaught ${text}`};
    }
    const text = isRefused(value, details) ? syntaxStack(value, details, code, name) :
        stackOf(value);
    return {type: 'error', name: wellFormed(value.name), value: wellFormed(value.message),
        traceback: wellFormed(text)};
}

// An error of a callback, which no execution waits for.
function reportUncaught(error) {
    if (!(error instanceof ProcessExit) && error?.code !== INTERRUPTED)
        process.stderr.write(`Uncaught ${error?.stack ? stackOf(error) : textOf(error)}\n`);
}

const interrupted = {type: 'error', name: 'KeyboardInterrupt', value: '', traceback: ''};

// --- Translation -------------------------------------------------------------------------------

const TOKEN = /\/\/[^\n]*|\/\*[^]*?\*\/|'(?:\\[^]|[^'\\\n])*'|"(?:\\[^]|[^"\\\n])*"|`(?:\\[^]|[^`\\])*`|[\w$]+|\s+|[^]/y;
const IMPORT = /import\s*(?:([\w$]+)\s*(?:,\s*)?)?(?:\*\s*as\s+([\w$]+)\s*|\{([^}]*)\}\s*)?(?:from\s*)?('[^'\n]*'|"[^"\n]*")(?:\s*(?:with|assert)\s*\{[^}]*\})?[ \t]*;?/y;

// The statement that imports as `import ... from` does.
function importing([text, whole, all, names, from]) {
    const bindings = [];
    if (whole)
        bindings.push(`default: ${whole}`);
    for (const name of (names || '').split(',').map((word) => word.trim()).filter(Boolean))
        bindings.push(name.replace(/\s+as\s+/, ': '));
    const call = `await __cayImport(${from})`;
    const newlines = '\n'.repeat(text.split('\n').length - 1);
    if (all)
        return `const ${all} = ${call};${whole ? `const ${whole} = ${all}.default;` : ''}${newlines}`;
    return (bindings.length ? `const {${bindings.join(', ')}} = ${call};` : `${call};`) + newlines;
}

// Replaces import statements and import().
function translate(code) {
    if (!code.includes('import'))
        return code;
    let result = '', before = ';';
    for (let at = 0; at < code.length;) {
        TOKEN.lastIndex = IMPORT.lastIndex = at;
        let [token] = TOKEN.exec(code);
        at += token.length;
        if (token === 'import' && /^\s*\(/.test(code.slice(at)) && before !== '.') {
            token = '__cayImport';
        } else if (token === 'import' && /[;}\n]/.test(before)) {
            const found = IMPORT.exec(code);
            if (found) {
                token = importing(found);
                at = IMPORT.lastIndex;
            }
        }
        if (/\S/.test(token) && !/^\/[/*]/.test(token))
            before = token.slice(-1);
        else if (token.includes('\n'))
            before = '\n';
        result += token;
    }
    return result;
}

// Code that is an object literal, which would be a block; others as they are.
function asExpression(code) {
    if (!/^\s*\{[^]*\}\s*$/.test(code))
        return code;
    try {
        new vm.Script(`(${code})`);
        return `(${code})`;
    } catch {
        return code;
    }
}

function importFrom(name) {
    if (/^\.{0,2}\//.test(name))
        return load(url.pathToFileURL(path.resolve(name)).href);
    return load(name);
}

const LIBRARIES = ['/usr/local/lib/node_modules', '/usr/lib/node_modules', '/usr/share/nodejs'];

// The package typescript of the working directory or of the system; null if there is none.
function findTypescript() {
    for (const name of ['typescript', ...LIBRARIES.map((library) => `${library}/typescript`)]) {
        try {
            return state.require(name);
        } catch { /* the next one */ }
    }
    return null;
}

function stripWithNode(code) {
    const warn = process.emitWarning;
    process.emitWarning = () => {}; // that it is experimental
    try {
        return module_.stripTypeScriptTypes(code);
    } catch (error) {
        if (error.code !== 'ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX')
            throw error;
        return module_.stripTypeScriptTypes(code, {mode: 'transform'}); // enum, namespace
    } finally {
        process.emitWarning = warn;
    }
}

function stripWithPackage(typescript, code) {
    // A later execution may use what this one imports: the options of old and new releases.
    const compilerOptions = {target: 'ES2022', module: 'ESNext', isolatedModules: true,
        verbatimModuleSyntax: true, preserveValueImports: true};
    const {outputText, diagnostics} = typescript.transpileModule(code,
        {compilerOptions, reportDiagnostics: true});
    const wrong = diagnostics?.find((diagnostic) => diagnostic.file);
    if (wrong) {
        const error = new SyntaxError(wrong.messageText);
        const line = code.slice(0, wrong.start).split('\n').length;
        error.stack = `line ${line}: ${code.split('\n')[line - 1]}\n\n${error}`;
        throw error;
    }
    return outputText.replace(/^export \{\};?$/m, '');
}

// JavaScript for TypeScript; null if nothing here can translate it.
function stripTypes(code) {
    if (module_.stripTypeScriptTypes)
        return stripWithNode(code);
    const typescript = findTypescript();
    return typescript && stripWithPackage(typescript, code);
}

function unsupported() {
    const error = new Error(`Node.js ${process.versions.node} cannot remove types: install ` +
        'Node.js 22.13 or later, or the package typescript (npm install typescript)');
    error.name = 'UnsupportedLanguage';
    error.stack = `${error.name}: ${error.message}`;
    return error;
}

// --- Executions --------------------------------------------------------------------------------

function post(method, parameters) {
    return new Promise((resolve, reject) => session.post(method, parameters,
        (error, result) => error ? reject(error) : resolve(result)));
}

// The value behind what the inspector returns.
async function valueOf(remote) {
    if (remote.objectId === undefined) {
        if (remote.unserializableValue !== undefined)
            return remote.type === 'bigint' ? BigInt(remote.unserializableValue.slice(0, -1)) :
                Number(remote.unserializableValue);
        return remote.subtype === 'null' ? null : remote.value;
    }
    await post('Runtime.callFunctionOn', {objectId: remote.objectId, silent: true,
        functionDeclaration: 'function (value) { __cayTake(value); }',
        arguments: [{objectId: remote.objectId}]});
    return state.taken;
}

// Evaluates code so that SIGINT ends also a loop that does not return to the event loop,
// before and after an await that needs no event.  Microtasks do not nest, so the event loop
// calls; what SIGINT ends takes its microtasks with it, so the driver's own ones come after.
function evaluate(code, name) {
    const parameters = {expression: `${code}\n//# sourceURL=${name}`, replMode: true,
        awaitPromise: true, silent: true, objectGroup: 'cay'};
    return new Promise((resolve) => setImmediate(() => {
        let inside = true, outcome = null;
        state.evaluate = () => {
            session.post('Runtime.evaluate', parameters, (error, result) => {
                outcome = result;
                if (!inside)
                    resolve(outcome);
            });
            process._tickCallback?.();
        };
        try {
            vm.runInThisContext('__cayEvaluate()', {breakOnSigint: true, filename: 'cay:core'});
        } catch (error) {
            if (error?.code === INTERRUPTED)
                state.running.interrupt();
            throw error; // as uncaught: only so node repairs its stack of asynchronous calls
        } finally {
            inside = false;
            if (outcome)
                resolve(outcome);
        }
    }));
}

function setEnv(env) {
    const before = {};
    for (const [name, value] of Object.entries(env || {})) {
        before[name] = process.env[name];
        process.env[name] = value;
    }
    return before;
}

function restoreEnv(before) {
    for (const [name, value] of Object.entries(before)) {
        if (value === undefined)
            delete process.env[name];
        else
            process.env[name] = value;
    }
}

function defineRequire() {
    if (!globalThis.require || globalThis.require === state.require)
        globalThis.require = state.require = module_.createRequire(path.resolve('cay.js'));
}

async function run(message, name) {
    defineRequire();
    const source = asExpression(message.code);
    const stripped = message.language === 'typescript' ? stripTypes(source) : source;
    const code = stripped ?? source;
    const {result, exceptionDetails: details} = await evaluate(translate(code), name);
    const value = await valueOf(details?.exception || result);
    if (stripped === null && isRefused(value, details))
        return describe(unsupported());
    if (details)
        return describe(value, details, code, name);
    if (value !== undefined && !message.silent)
        emit(partsOf(value), true);
    return null;
}

// Runs code; returns the line of its error, or null.
async function runToEnd(message, name) {
    const interrupt = new Promise((resolve) => {
        state.running.interrupt = () => resolve(interrupted);
    });
    const running = run(message, name).catch((error) =>
        describe(error, null, message.code, name));
    return Promise.race([running, interrupt]);
}

async function execute(message) {
    // A turn of the event loop takes the signals that came before.
    await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
    if (!message.silent)
        send({type: 'count', count: ++state.count});
    state.running = {};
    const before = setEnv(message.env);
    const error = await runToEnd(message, message.silent ? 'setup.js' : `cell-${state.count}.js`);
    restoreEnv(before);
    if (error)
        send(error);
    session.post('Runtime.releaseObjectGroup', {objectGroup: 'cay'});
    state.taken = undefined;
    state.running = null;
    send({type: 'done', id: message.id});
}

function listen() {
    const socket = new net.Socket({fd: CHANNEL, readable: true, writable: false});
    let pending = '', last = Promise.resolve();
    socket.setEncoding('utf8');
    socket.on('data', (text) => {
        const lines = (pending + text).split('\n');
        pending = lines.pop();
        for (const line of lines) {
            const message = JSON.parse(line);
            if (message.type === 'execute')
                last = last.then(() => execute(message));
        }
    });
    socket.on('close', () => state.exit.call(process, 0));
    socket.on('error', () => process.reallyExit(0));
}

function define(name, value) {
    Object.defineProperty(globalThis, name, {value, writable: true, configurable: true});
}

function start() {
    session.connect();
    replaceStream(process.stdout, 'stdout');
    replaceStream(process.stderr, 'stderr');
    define('__cayImport', importFrom);
    define('__cayTake', (value) => { state.taken = value; });
    define('__cayEvaluate', () => state.evaluate());
    define('display', display);
    process.exit = (code) => { throw new ProcessExit(code ?? process.exitCode ?? 0); };
    process.on('SIGINT', () => state.running?.interrupt?.());
    process.on('uncaughtException', reportUncaught);
    process.on('unhandledRejection', reportUncaught);
    send({type: 'ready', version: process.versions.node});
    listen();
}

start();
})
