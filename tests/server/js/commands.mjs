// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict'
import { Sandbox, CommandExitError, InvalidArgumentError, TimeoutError } from 'e2b'

const box = await Sandbox.create({ envs: { GLOBAL: 'one' }, timeoutMs: 60000 })
const run = (command, options) => box.commands.run(command, options)

let result = await run('echo out; echo err >&2; echo $GLOBAL $OWN', { envs: { OWN: 'two' } })
assert.deepEqual([result.stdout, result.stderr, result.exitCode], ['out\none two\n', 'err\n', 0])
await assert.rejects(run('echo partly; exit 3'), (error) =>
  error instanceof CommandExitError && error.exitCode === 3 && error.stdout === 'partly\n')
assert.equal((await run('pwd; id -un', { cwd: '/tmp', user: 'root' })).stdout, '/tmp\nroot\n')
await assert.rejects(run('pwd', { cwd: '/no/such/place' }), InvalidArgumentError)

const size = 20_000_000
result = await run(`head -c ${size} /dev/zero | tr '\\0' x`)
assert.equal(result.stdout.length, size)

const pieces = []
const reader = await run('echo first; read line; echo second $line',
  { background: true, stdin: true, onStdout: (text) => pieces.push(text) })
await box.commands.sendStdin(reader.pid, 'given\n')
await reader.wait()
assert.equal(pieces.join(''), 'first\nsecond given\n')

const sleeper = await run('sleep 1000', { background: true, timeoutMs: 0 })
assert.deepEqual((await box.commands.list()).map((item) => item.pid), [sleeper.pid])
await sleeper.disconnect()
const again = await box.commands.connect(sleeper.pid, { timeoutMs: 0 })
assert.equal(await box.commands.kill(sleeper.pid), true)
await assert.rejects(again.wait(), (error) => error.exitCode === -1)
assert.equal(await box.commands.kill(sleeper.pid), false)
await assert.rejects(run('sleep 1000', { timeoutMs: 500 }), TimeoutError)

let screen = ''
const pty = await box.pty.create({
  cols: 100, rows: 30, onData: (data) => { screen += new TextDecoder().decode(data) } })
await box.pty.resize(pty.pid, { cols: 120, rows: 40 })
await box.pty.sendInput(pty.pid, new TextEncoder().encode('stty size; exit\n'))
await pty.wait()
assert.match(screen, /40 120/)

const many = await Promise.all([...Array(50).keys()].map((i) => run(`echo ${i}`)))
assert.deepEqual(many.map((item) => item.stdout), [...Array(50).keys()].map((i) => `${i}\n`))

const doomed = await run('sleep 1000', { background: true, timeoutMs: 0 })
await box.kill()
await assert.rejects(doomed.wait(), TimeoutError)
console.log('ok')
