// SPDX-License-Identifier: Apache-2.0
// The server is killed in the middle of a stream, and another started: who runs this does
// both, when it is told "streaming" and "broken", and then says "go".
import assert from 'node:assert/strict'
import { createInterface } from 'node:readline'
import { Sandbox } from 'e2b'

const pause = () => new Promise((resolve) => setTimeout(resolve, 20))
const box = await Sandbox.create({ timeoutMs: 300000 })
let heard = ''
const onStdout = (text) => { heard += text }
const counter = await box.commands.run('n=0; while :; do n=$((n+1)); echo $n; sleep 0.02; done',
  { background: true, timeoutMs: 0, onStdout })
while (!heard.includes('5\n')) await pause()
console.log('streaming')
await assert.rejects(counter.wait())
const last = Number(heard.trim().split('\n').at(-1))
console.log('broken')
for await (const line of createInterface({ input: process.stdin })) { if (line === 'go') break }

assert.equal(await box.isRunning(), true) // with the token it had before
heard = ''
const again = await (await Sandbox.connect(box.sandboxId)).commands.connect(counter.pid,
  { timeoutMs: 0, onStdout })
while (!heard.includes('\n')) await pause()
assert.ok(Number(heard.split('\n')[0]) > last)
assert.equal(await again.kill(), true)
await assert.rejects(again.wait(), (error) => error.exitCode === -1)
assert.equal(await box.kill(), true)
console.log('ok')
process.exit(0)
