// SPDX-License-Identifier: Apache-2.0
// code.mjs PACKAGE: E2B's code interpreter for JavaScript, unmodified, against the server that
// the environment names.  Prints TAP.
import assert from 'node:assert/strict'

import { create, is, run, Sandbox, shared, test } from './tap.mjs'

const python = async (code, options) => (await shared()).runCode(code, options)

// --- Values, state and contexts ------------------------------------------------------

test('the last expression is the text', async () => {
  for (const [code, text] of [['x =1; x', '1'], ["'text'", 'text'], ["'é😀'", 'é😀'], ['None'],
    ['\n    y = 2\n    y', '2']]) {
    const execution = await python(code)
    assert.deepEqual([execution.text, execution.error], [text, undefined])
  }
})

test('variables and the count stay with the context', async () => {
  const sandbox = await shared()
  const context = await sandbox.createCodeContext()
  assert.equal((await sandbox.runCode('x = 1', { context })).executionCount, 1)
  const execution = await sandbox.runCode('x += 1; x', { context })
  assert.deepEqual([execution.executionCount, execution.text], [2, '2'])
})

test('variables stay when another client connects', async () => {
  await python("mine = 'kept'")
  const again = await Sandbox.connect((await shared()).sandboxId)
  assert.equal((await again.runCode('mine')).text, 'kept')
})

test('a sandbox without public traffic runs code with its token', async () => {
  const sandbox = await create({ network: { allowPublicTraffic: false } })
  assert.ok(sandbox.trafficAccessToken)
  assert.equal((await sandbox.runCode('1 + 1')).text, '2')
})

test('the default contexts are there from the start', async () => {
  const contexts = await (await create()).listCodeContexts()
  assert.deepEqual(contexts.map(({ language, cwd }) => [language, cwd]),
    [['python', '/home/user'], ['javascript', '/home/user']])
})

test('a new context is the last of the list until it is removed', async () => {
  const sandbox = await shared()
  for (const [options, language, cwd] of [[undefined, 'python', '/home/user'],
    [{ language: 'python', cwd: '/root' }, 'python', '/root'],
    [{ language: 'ts', cwd: '/tmp' }, 'typescript', '/tmp'],
    [{ language: 'bash' }, 'bash', '/home/user']]) {
    const context = await sandbox.createCodeContext(options)
    assert.deepEqual([context.language, context.cwd], [language, cwd])
    assert.deepEqual((await sandbox.listCodeContexts()).at(-1), context)
    await sandbox.removeCodeContext(context)
    assert.ok(!(await sandbox.listCodeContexts()).some(({ id }) => id === context.id))
    await assert.rejects(sandbox.removeCodeContext(context.id), is('NotFoundError'))
    await assert.rejects(sandbox.restartCodeContext(context), is('NotFoundError'))
    await assert.rejects(sandbox.runCode('1', { context }), is('NotFoundError'))
  }
})

test('contexts do not share variables', async () => {
  const sandbox = await shared()
  const [one, two] = [await sandbox.createCodeContext(), await sandbox.createCodeContext()]
  await sandbox.runCode('secret = 1', { context: one })
  assert.equal((await sandbox.runCode('secret', { context: two })).error.name, 'NameError')
  assert.equal((await sandbox.runCode('secret', { context: one })).text, '1')
})

test('a restart keeps the context and forgets its variables', async () => {
  const sandbox = await shared()
  const context = await sandbox.createCodeContext()
  await sandbox.runCode('x = 1', { context })
  await sandbox.restartCodeContext(context)
  const { error } = await sandbox.runCode('x', { context })
  assert.deepEqual([error.name, error.value], ['NameError', "name 'x' is not defined"])
})

test('a request that means nothing is rejected', async () => {
  const sandbox = await shared()
  const [context] = await sandbox.listCodeContexts()
  await assert.rejects(sandbox.runCode('1', { context, language: 'python' }),
    is('InvalidArgumentError'))
  await assert.rejects(sandbox.runCode({ code: 1 }), is('SandboxError'))
  await assert.rejects(sandbox.runCode('1', { language: 'cobol' }), is('SandboxError'))
  assert.equal((await sandbox.runCode('1')).text, '1')
})

// --- Output, results and errors as they come -----------------------------------------

test('each callback is called once for what it is for', async () => {
  for (const [code, name, text] of [["print('hello')", 'onStdout', 'hello\n'],
    ["import sys; print('hello', file=sys.stderr)", 'onStderr', 'hello\n'],
    ['7', 'onResult', '7'], ['nothing', 'onError', 'NameError']]) {
    const calls = []
    const options = Object.fromEntries(['onStdout', 'onStderr', 'onResult', 'onError'].map(
      (key) => [key, (value) => calls.push([key, value.line ?? value.text ?? value.name])]))
    await python(code, options)
    assert.deepEqual(calls, [[name, text]])
  }
})

test('output arrives while the code runs', async () => {
  const sandbox = await shared()
  const { logs } = await sandbox.runCode(`import os, time
print('first')
while not os.path.exists('answer'): time.sleep(0.01)
print('last')`, { onStdout: ({ line }) => line === 'first\n' && sandbox.files.write('answer', '') })
  assert.deepEqual(logs.stdout, ['first\n', 'last\n'])
})

test('output of any size and kind is complete', async () => {
  for (const [unit, times] of [['é😀', 50_000], ['line\n', 20_000], ['\x1b[31m\0"\\\u2028', 1]]) {
    const code = `print(${JSON.stringify(unit)} * ${times})`.replace('\0', '\\0')
    assert.ok((await python(code)).logs.stdout.join('') === `${unit.repeat(times)}\n`, unit)
  }
  assert.deepEqual((await python('!pwd; echo bad >&2')).logs,
    { stdout: ['/home/user\n'], stderr: ['bad\n'] })
})

test('an error has a name a value and a traceback', async () => {
  const { error, logs } = await python("print('before')\n1 / 0")
  assert.deepEqual([error.name, error.value], ['ZeroDivisionError', 'division by zero'])
  assert.match(error.traceback, /line 2[^]*1 \/ 0[^]*ZeroDivisionError: division by zero/)
  assert.deepEqual(logs.stdout, ['before\n'])
})

test('an interpreter that ends is an error and the next one works', async () => {
  const sandbox = await shared()
  const context = await sandbox.createCodeContext()
  const { error } = await sandbox.runCode('import os; os._exit(3)', { context })
  assert.equal(error.name, 'ContextRestarting')
  assert.equal((await sandbox.runCode('1 + 1', { context })).text, '2')
})

// --- Results of every type -----------------------------------------------------------

test('a displayed type has one format', async () => {
  for (const [name, mime, data] of [['html', 'text/html', '<b>x</b>'],
    ['markdown', 'text/markdown', '*x*'], ['svg', 'image/svg+xml', '<svg/>'],
    ['png', 'image/png', 'cG5n'], ['jpeg', 'image/jpeg', 'anBn'], ['pdf', 'application/pdf', 'cGRm'],
    ['latex', 'text/latex', '$x$'], ['json', 'application/json', { a: [1] }],
    ['javascript', 'application/javascript', '1'], ['data', 'e2b/data', { a: [1] }]]) {
    const { results } = await python(`display(${JSON.stringify({ [mime]: data })}, raw=True)`)
    assert.equal(results.length, 1)
    assert.deepEqual(results[0][name], data)
    assert.deepEqual([results[0].formats(), results[0].isMainResult, results[0].extra],
      [[name], false, {}])
  }
})

test('numbers that JSON has not are null', async () => {
  assert.deepEqual((await python("[1, float('nan'), float('inf')]")).results[0].json,
    [1, null, null])
})

test('a data frame is data html and text', async () => {
  const { results: [result] } = await python(
    "import pandas as pd\npd.DataFrame({'a': [1, 2, 3], 'b': ['x', None, 'z']})")
  assert.deepEqual(result.data, { a: [1, 2, 3], b: ['x', null, 'z'] })
  assert.deepEqual(result.formats(), ['html', 'data'])
})

test('a picture is one result with text', async () => {
  await python('import matplotlib.pyplot as plt\nfrom PIL import Image')
  for (const code of ['plt.plot([1, 2]); plt.show()', 'f, a = plt.subplots(); a.plot([1, 2]); f',
    "Image.new('RGB', (2, 2))", "Image.new('RGB', (2, 2)).show()",
    "Image.new('RGB', (2, 2)).save('x.png')"]) {
    const { results } = await python(code)
    assert.equal(results.length, 1, code)
    assert.match(Buffer.from(results[0].png, 'base64').toString('latin1'), /^\x89PNG/)
    assert.ok(results[0].text)
    assert.deepEqual(results[0].extra, {})
  }
  const { results, text } = await python('plt.plot([1, 2]); plt.show()\n5')
  assert.deepEqual([results.length, text], [2, '5'])
})

test('a figure is a chart of its type', async () => {
  for (const [type, code, first] of [
    ['line', "plt.plot([1, 2], [3, 4], label='a')", { label: 'a', points: [[1, 3], [2, 4]] }],
    ['scatter', "plt.scatter([1, 2], [3, 4], label='a')", { label: 'a', points: [[1, 3], [2, 4]] }],
    ['bar', "plt.bar(['A', 'B'], [1, 2])", { label: 'A', group: 'Group 0', value: 1 }],
    ['pie', "plt.pie([90, 10], labels=['A', 'B'])", { label: 'A', angle: 324, radius: 1 }],
    ['box_and_whisker', "plt.boxplot([[85, 90, 78, 92, 88], [1, 2, 3]], labels=['A', 'B'], "
      + 'patch_artist=True)', { label: 'A', min: 78, first_quartile: 85, median: 88,
      third_quartile: 90, max: 92, outliers: [] }],
    ['unknown', 'plt.imshow([[1, 2]])', undefined]]) {
    const { results: [{ chart }] } = await python(
      `import matplotlib.pyplot as plt\n${code}; plt.title('T')\nplt.show()`)
    assert.deepEqual([chart.type, chart.title, chart.elements[0]], [type, 'T', first])
  }
  const { results: [{ chart }] } = await python(`f, (a, b) = plt.subplots(1, 2)
a.plot([1, 2]); b.scatter([1], [2]); f.suptitle('T'); plt.show()`)
  assert.deepEqual([chart.type, chart.title, chart.elements.map(({ type }) => type)],
    ['superchart', 'T', ['line', 'scatter']])
})

// --- Languages, directories and variables --------------------------------------------

test('code of every language has its directory and variables', async () => {
  const sandbox = await create({ envs: { OF_SANDBOX: 'global' } })
  const js = (code) => `console.log(${code})`
  for (const [language, cwd, variable] of [
    ['python', 'import os; print(os.getcwd())', (name) => `print(os.getenv('${name}', 'none'))`],
    ['js', js('process.cwd()'), (name) => js(`process.env.${name} ?? 'none'`)],
    ['ts', js('process.cwd()'), (name) => js(`process.env.${name} ?? 'none'`)],
    ['bash', 'pwd', (name) => `echo "\${${name}:-none}"`]]) {
    const line = async (code, envs) => (await sandbox.runCode(code, { language, envs })).logs.stdout
    assert.deepEqual(await line(cwd), ['/home/user\n'], language)
    assert.deepEqual(await line(variable('OF_SANDBOX')), ['global\n'], language)
    assert.deepEqual(await line(variable('OF_SANDBOX'), { OF_SANDBOX: 'call' }), ['call\n'])
    assert.deepEqual(await line(variable('OF_SANDBOX')), ['global\n'])
    assert.deepEqual(await line(variable('A'), { A: '1' }), ['1\n'])
    assert.deepEqual(await line(variable('A')), ['none\n'])
  }
})

test('javascript has imports and await', async () => {
  for (const [code, text] of [['const add = (x, y) => x + y; add(1, 2)', '3'],
    ["import url from 'url'\nurl.parse('http://host/').host", 'host'],
    ["async function main() { return 'late' }\nawait main()", 'late']]) {
    const execution = await python(code, { language: 'js' })
    assert.deepEqual([execution.error, execution.text], [undefined, text])
  }
})

test('typescript has types and shares the variables of javascript', async () => {
  await python('const shared = 40', { language: 'js' })
  const { text, error } = await python(
    'function plus(x: number): number { return x + 2 }\nplus(shared)', { language: 'ts' })
  if (error?.name !== 'UnsupportedLanguage') assert.deepEqual([text, error], ['42', undefined])
})

// --- Timeouts and ends ---------------------------------------------------------------

test('code is interrupted when its client leaves', async () => {
  const sandbox = await create()
  await assert.rejects(sandbox.runCode(`import time
try: time.sleep(1000)
except KeyboardInterrupt: open('interrupted', 'w')`, { timeoutMs: 1000 }), is('TimeoutError'))
  assert.equal((await sandbox.runCode('1 + 1')).text, '2')
  assert.equal(await sandbox.files.exists('interrupted'), true)
})

test('a sandbox that is killed ends its executions with the reason', async () => {
  const sandbox = await create()
  await assert.rejects(sandbox.runCode("import time\nprint('up')\ntime.sleep(1000)",
    { timeoutMs: 0, onStdout: () => { sandbox.kill() } }),
  (error) => is('TimeoutError')(error) && /sandbox was killed/.test(error.message))
})

await run()
