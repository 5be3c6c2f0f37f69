// SPDX-License-Identifier: Apache-2.0
// run.mjs PACKAGE: the E2B SDK for JavaScript, unmodified, against the server that the
// environment names.  Prints TAP.  It is run from a directory in which PACKAGE is installed.
import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'

import { create, is, run, Sandbox, shared, test, until } from './tap.mjs'

const count = (size) => [...Array(size).keys()]
const sha256 = (data) => createHash('sha256').update(data).digest('hex')
const bytes = (text) => new TextEncoder().encode(text)
const text = (data) => new TextDecoder().decode(data)

// --- Lives ---------------------------------------------------------------------------

test('a new sandbox is what was asked for', async () => {
  const sandbox = await create({ timeoutMs: 61_500, metadata: { who: 'me' }, envs: { A: 'b' } })
  assert.match(sandbox.sandboxId, /^[a-z0-9]+$/)
  assert.equal(await sandbox.isRunning(), true)
  const info = await sandbox.getInfo()
  assert.equal(info.sandboxId, sandbox.sandboxId)
  assert.equal(info.templateId, 'base')
  assert.equal(info.state, 'running')
  assert.deepEqual(info.metadata, { who: 'me' })
  const seconds = (info.endAt - info.startedAt) / 1000
  assert.ok(seconds > 60.9 && seconds < 63, `${seconds}`)
  assert.equal((await sandbox.commands.run('echo $A')).stdout, 'b\n')
  const port = new URL(process.env.E2B_API_URL).port
  assert.equal(sandbox.getHost(80), `80-${sandbox.sandboxId}.localhost:${port}`)
  for (const metrics of await sandbox.getMetrics()) assert.ok(metrics.memTotal > 0)
})

test('an unknown template and a wrong key are refused', async () => {
  await assert.rejects(create('no-such-template'), /404/)
  await assert.rejects(create({ apiKey: `e2b_${'0'.repeat(40)}` }), is('AuthenticationError'))
})

test('a sandbox is connected to by its id, and what never was is not found', async () => {
  const sandbox = await create()
  await sandbox.files.write('note', 'still here')
  const again = await Sandbox.connect(sandbox.sandboxId)
  assert.equal(await again.files.read('note'), 'still here')
  await assert.rejects(Sandbox.connect('neverwas'), is('SandboxNotFoundError', 'NotFoundError'))
  await assert.rejects(Sandbox.getInfo('neverwas'), is('SandboxNotFoundError', 'NotFoundError'))
  assert.equal(await Sandbox.kill('neverwas'), false)
})

test('connecting only lengthens a life, setting its time may shorten it', async () => {
  const sandbox = await create({ timeoutMs: 300_000 })
  const left = async () => ((await sandbox.getInfo()).endAt - Date.now()) / 1000
  await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 10_000 })
  assert.ok(await left() > 200)
  await sandbox.setTimeout(100_000)
  assert.ok(await left() <= 100)
  await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 1_000_000 })
  assert.ok(await left() > 900)
})

test('a killed sandbox is gone', async () => {
  const sandbox = await create()
  assert.equal(await sandbox.kill(), true)
  assert.equal(await sandbox.kill(), false)
  assert.equal(await sandbox.isRunning(), false)
  await assert.rejects(sandbox.commands.run('true'))
  await assert.rejects(sandbox.files.read('x'))
})

test('a sandbox ends when its time is over', async () => {
  const sandbox = await create()
  await sandbox.setTimeout(1000)
  await until(async () => !(await sandbox.isRunning()), 'it lives on')
})

test('the list is filtered by metadata and state, and paged', async () => {
  const mark = randomBytes(4).toString('hex') + ' ü &=%+'
  const made = []
  for (let i = 0; i < 3; i++) made.unshift(await create({ metadata: { mark, number: `${i}` } }))
  const ids = async (query, limit) => {
    const pages = Sandbox.list({ query, limit })
    const found = []
    while (pages.hasNext) found.push(...await pages.nextItems())
    return found.map((info) => info.sandboxId)
  }
  const all = made.map((sandbox) => sandbox.sandboxId)
  assert.deepEqual(await ids({ metadata: { mark } }), all)
  assert.deepEqual(await ids({ metadata: { mark } }, 2), all)
  assert.deepEqual(await ids({ metadata: { mark, number: '1' } }), [all[1]])
  await made[0].pause()
  assert.deepEqual(await ids({ metadata: { mark }, state: ['paused'] }), [all[0]])
  assert.deepEqual(await ids({ metadata: { mark }, state: ['running'] }), all.slice(1))
  assert.deepEqual(await ids({ metadata: { mark }, state: ['running', 'paused'] }), all)
})

test('a tenant sees only his own', async () => {
  const apiKey = process.env.CAY_OTHER_KEY
  const sandbox = await create()
  const foreign = await create({ apiKey })
  const seen = (await Sandbox.list({ apiKey }).nextItems()).map((info) => info.sandboxId)
  assert.ok(seen.includes(foreign.sandboxId) && !seen.includes(sandbox.sandboxId))
  assert.equal(await Sandbox.kill(sandbox.sandboxId, { apiKey }), false)
  await assert.rejects(Sandbox.connect(sandbox.sandboxId, { apiKey }))
  assert.equal(await sandbox.isRunning(), true)
})

test('a process goes on after a pause', async () => {
  const sandbox = await create()
  const handle = await sandbox.commands.run(
    'n=0; while :; do n=$((n+1)); echo $n > n.new; mv n.new n; sleep 0.01; done',
    { background: true, timeoutMs: 0 })
  await until(() => sandbox.files.exists('n'), 'it does not count')
  await handle.disconnect()
  assert.equal(await sandbox.pause(), true)
  assert.equal(await sandbox.pause(), false)
  assert.equal(await sandbox.isRunning(), false)
  assert.equal((await sandbox.getInfo()).state, 'paused')
  const again = await Sandbox.connect(sandbox.sandboxId)
  const seen = Number(await again.files.read('n'))
  assert.ok(seen > 0)
  await until(async () => Number(await again.files.read('n')) > seen, 'it no longer counts')
  assert.deepEqual((await again.commands.list()).map((info) => info.pid), [handle.pid])
})

// --- Commands ------------------------------------------------------------------------

test('a command says what it said and how it ended', async () => {
  const { commands } = await shared()
  const result = await commands.run('echo out; echo err >&2')
  assert.deepEqual([result.stdout, result.stderr, result.exitCode], ['out\n', 'err\n', 0])
  await assert.rejects(commands.run('echo a; echo b >&2; exit 3'), (error) => {
    assert.deepEqual([error.constructor.name, error.exitCode, error.stdout, error.stderr],
      ['CommandExitError', 3, 'a\n', 'b\n'])
    return true
  })
})

test('a command has the surroundings asked for', async () => {
  const { commands } = await shared()
  const result = await commands.run('echo $K; pwd; id -u; echo $HOME',
    { envs: { K: 'ü "v"' }, cwd: '/tmp', user: 'root' })
  assert.equal(result.stdout, 'ü "v"\n/tmp\n0\n/root\n')
  assert.equal((await commands.run('id -un; pwd')).stdout, 'user\n/home/user\n')
  await assert.rejects(commands.run('pwd', { cwd: '/no/such' }), is('InvalidArgumentError'))
})

test('output of many bytes comes whole, and as it is made', async () => {
  const { commands } = await shared()
  const hash = createHash('sha256')
  await commands.run('seq -f %015.0f 0 1048575', { onStdout: (part) => { hash.update(part) } })
  const expected = createHash('sha256')
  for (let i = 0; i < 1048576; i++) expected.update(`${i}`.padStart(15, '0') + '\n')
  assert.equal(hash.digest('hex'), expected.digest('hex'))
  let heard = ''
  const handle = await commands.run('echo first; read w; echo second', {
    background: true, stdin: true, onStdout: (part) => { heard += part } })
  await until(() => heard === 'first\n', heard)
  await commands.sendStdin(handle.pid, 'go\n')
  assert.equal((await handle.wait()).stdout, 'first\nsecond\n')
})

test('characters are not torn', async () => {
  const { commands, files } = await shared()
  const wide = 'aé€😀'.repeat(50_000)
  await files.write('wide', wide)
  assert.equal((await commands.run('cat wide')).stdout, wide)
})

test('many commands run at once', async () => {
  const { commands } = await shared()
  const results = await Promise.all(count(50).map((n) => commands.run(`sleep 0.1; echo ${n}`)))
  assert.deepEqual(results.map((result) => result.stdout), count(50).map((n) => `${n}\n`))
})

test('input is sent and closed', async () => {
  const { commands } = await shared()
  const handle = await commands.run('cat; echo end', { background: true, stdin: true })
  await commands.sendStdin(handle.pid, 'one\n')
  await commands.sendStdin(handle.pid, 'zwei ü\n')
  await commands.closeStdin(handle.pid)
  assert.equal((await handle.wait()).stdout, 'one\nzwei ü\nend\n')
})

test('a command is listed, connected to again, and killed', async () => {
  const { commands } = await shared()
  const handle = await commands.run('echo old; while read w; do echo new $w; done',
    { background: true, stdin: true, timeoutMs: 0 })
  const info = (await commands.list()).find((one) => one.pid === handle.pid)
  assert.equal(info.cmd, '/bin/bash')
  await until(() => handle.stdout === 'old\n', 'it does not begin')
  await handle.disconnect()
  let heard = ''
  const again = await commands.connect(handle.pid, {
    timeoutMs: 0, onStdout: (part) => { heard += part } })
  await commands.sendStdin(handle.pid, '1\n')
  await until(() => heard === 'new 1\n', heard)
  assert.equal(await again.kill(), true)
  await assert.rejects(again.wait(), (error) => error.exitCode === -1)
  assert.equal(await commands.kill(handle.pid), false)
  assert.equal(await commands.kill(999999), false)
  await assert.rejects(commands.connect(999999), is('NotFoundError'))
})

test('a command that takes too long is ended', async () => {
  const { commands } = await shared()
  await assert.rejects(commands.run('sleep 1000', { timeoutMs: 500 }), is('TimeoutError'))
})

test('a terminal has a size, takes input and ends', async () => {
  const { pty } = await shared()
  let seen = ''
  const handle = await pty.create({
    cols: 100, rows: 30, onData: (data) => { seen += text(data) }, envs: { A: 'b' }, cwd: '/tmp' })
  await pty.sendInput(handle.pid, bytes('stty size; echo "<$A $PWD $TERM>"\n'))
  await until(() => seen.includes('30 100') && seen.includes('<b /tmp xterm-256color>'), seen)
  await pty.resize(handle.pid, { cols: 120, rows: 40 })
  await pty.sendInput(handle.pid, bytes('stty size\n'))
  await until(() => seen.includes('40 120'), seen)
  await pty.sendInput(handle.pid, bytes('exit\n'))
  assert.equal((await handle.wait()).exitCode, 0)
})

test('a terminal is connected to again', async () => {
  const { pty } = await shared()
  const handle = await pty.create({ cols: 80, rows: 24, onData: () => {}, timeoutMs: 0 })
  await handle.disconnect()
  let seen = ''
  const again = await pty.connect(handle.pid, { onData: (data) => { seen += text(data) } })
  await pty.sendInput(handle.pid, bytes('echo he$((1))re\n'))
  await until(() => seen.includes('he1re'), seen)
  assert.equal(await pty.kill(handle.pid), true)
  await assert.rejects(again.wait())
})

// --- Files ---------------------------------------------------------------------------

test('files of every size and form come back as they went', async () => {
  const { files, commands } = await shared()
  for (const size of [0, 1, 4096, 65_537, 5_000_001]) {
    const data = randomBytes(size)
    const plain = data.buffer.slice(data.byteOffset, data.byteOffset + size)
    for (const form of [plain, new Blob([data])]) {
      await files.write('data', form)
      assert.ok(data.equals(await files.read('data', { format: 'bytes' })), `${size}`)
    }
    assert.equal((await commands.run('sha256sum < data')).stdout.split(' ')[0], sha256(data))
    assert.equal((await files.getInfo('data')).size, size)
  }
  await files.write('text', 'ü€😀\n')
  assert.equal(await files.read('text'), 'ü€😀\n')
  assert.equal(await (await files.read('text', { format: 'blob' })).text(), 'ü€😀\n')
})

test('a file is streamed both ways', async () => {
  const { files } = await shared()
  const parts = count(100).map((n) => randomBytes(50_000 + n))
  await files.write('streamed', ReadableStream.from(parts))
  const got = []
  for await (const part of await files.read('streamed', { format: 'stream' })) got.push(part)
  assert.ok(Buffer.concat(parts).equals(Buffer.concat(got)))
})

test('several files are written at once', async () => {
  const { files } = await shared()
  const infos = await files.write(count(10).map(
    (n) => ({ path: `many/${n}/deep`, data: `content ${n}` })))
  assert.deepEqual(infos.map((info) => info.path),
    count(10).map((n) => `/home/user/many/${n}/deep`))
  assert.equal(await files.read('many/7/deep'), 'content 7')
})

test('names are kept as they are', async () => {
  const { files } = await shared()
  for (const name of ['two words', ' lead', 'ümläut', '日本語', '😀', "quo'te", 'dou"ble',
    'back\\slash', 'per%cent', '%2e%2e', 'a+b', 'a&b=c', 'que?ry', 'ha#sh',
    'semi;colon', 'new\nline', '.hidden', '-dash', '$HOME', '*', '\x01\x7f', 'x'.repeat(255)]) {
    const info = await files.write(`names/${name}`, name)
    assert.equal(info.path, `/home/user/names/${name}`)
    assert.deepEqual((await files.list('names')).map((entry) => entry.name), [name])
    assert.equal(await files.read(`names/${name}`), name)
    await files.rename(`names/${name}`, 'names/renamed')
    assert.equal(await files.exists(`names/${name}`), false)
    await files.remove('names/renamed')
  }
})

test('directories are made, listed, renamed and removed', async () => {
  const { files } = await shared()
  assert.equal(await files.makeDir('d/sub'), true)
  assert.equal(await files.makeDir('d/sub'), false)
  await files.write('d/sub/file', '12345')
  assert.deepEqual((await files.list('d', { depth: 2 })).map((entry) => entry.path).sort(),
    ['/home/user/d/sub', '/home/user/d/sub/file'])
  const info = await files.getInfo('d/sub/file')
  assert.deepEqual([info.size, info.owner, info.type], [5, 'user', 'file'])
  await files.rename('d', 'moved')
  await files.remove('moved')
  assert.equal(await files.exists('moved'), false)
  await assert.rejects(files.read('moved'), is('FileNotFoundError', 'NotFoundError'))
  await assert.rejects(files.list('moved'), is('FileNotFoundError', 'NotFoundError'))
  await assert.rejects(files.read('/home/user'), is('InvalidArgumentError'))
})

test('a watch tells of changes', async () => {
  const { files } = await shared()
  await files.makeDir('w/below')
  const seen = new Set()
  const handle = await files.watchDir('w', (event) => { seen.add(`${event.type} ${event.name}`) },
    { recursive: true, timeoutMs: 0 })
  await files.write('w/below/f', '1')
  await files.rename('w/below/f', 'w/below/g')
  await files.remove('w/below/g')
  for (const wanted of ['create below/f', 'write below/f', 'rename below/f', 'create below/g',
    'remove below/g']) await until(() => seen.has(wanted), [wanted, ...seen])
  await handle.stop()
  await assert.rejects(files.watchDir('nowhere', () => {}),
    is('FileNotFoundError', 'NotFoundError'))
})

test('signed addresses read and write', async () => {
  const sandbox = await shared()
  await sandbox.files.write('sig ned', 'content')
  const url = await sandbox.downloadUrl('sig ned', { useSignatureExpiration: 100 })
  assert.equal(await (await fetch(url)).text(), 'content')
  assert.equal((await fetch(url.replace('path=sig', 'path=gis'))).status, 401)
  assert.equal((await fetch(url.replace('signature=v1_', 'signature=v1_A'))).status, 401)
  const form = new FormData()
  form.append('file', new Blob(['sent']), 'up/by form')
  const answer = await fetch(await sandbox.uploadUrl(), { method: 'POST', body: form })
  assert.equal(answer.status, 200)
  assert.equal(await sandbox.files.read('up/by form'), 'sent')
})

// --- What dies -----------------------------------------------------------------------

test('a sandbox killed under its streams is said to be gone', async () => {
  const sandbox = await create()
  let heard = 0
  const handles = await Promise.all([1, 2, 3].map(() => sandbox.commands.run(
    'echo here; sleep 1000', { background: true, timeoutMs: 0, onStdout: () => { heard++ } })))
  await until(() => heard === 3, heard)
  assert.equal(await sandbox.kill(), true)
  for (const handle of handles) await assert.rejects(handle.wait(), is('TimeoutError'))
})

await run()
