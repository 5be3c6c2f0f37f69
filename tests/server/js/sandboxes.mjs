// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict'
import { Sandbox, AuthenticationError, NotFoundError } from 'e2b'

const box = await Sandbox.create({ metadata: { a: 'b c', 'ü&=': '%41' }, timeoutMs: 61500 })
assert.match(box.sandboxId, /^[a-z0-9]+$/)
assert.equal(await box.isRunning(), true)

const info = await box.getInfo()
assert.equal(info.templateId, 'base')
assert.equal(info.state, 'running')
assert.deepEqual(info.metadata, { a: 'b c', 'ü&=': '%41' })
const seconds = (info.endAt - info.startedAt) / 1000
assert.ok(seconds > 55 && seconds < 70, `${seconds}`)

const found = await Sandbox.list({ query: { metadata: { a: 'b c', 'ü&=': '%41' } } }).nextItems()
assert.deepEqual(found.map((item) => item.sandboxId), [box.sandboxId])
assert.deepEqual(await Sandbox.list({ query: { metadata: { a: 'b' } } }).nextItems(), [])
assert.ok((await Sandbox.list({ query: { state: ['running', 'paused'] } }).nextItems())
  .some((item) => item.sandboxId === box.sandboxId))

await box.setTimeout(30000)
const before = (await box.getInfo()).endAt
await Sandbox.connect(box.sandboxId, { timeoutMs: 10000 })
assert.deepEqual((await box.getInfo()).endAt, before)

await box.files.write('kept', 'yes')
assert.equal(await box.pause(), true)
assert.equal(await box.isRunning(), false)
assert.equal((await box.getInfo()).state, 'paused')
const again = await Sandbox.connect(box.sandboxId, { timeoutMs: 60000 })
assert.equal(await again.files.read('kept'), 'yes')

assert.equal((await box.getMetrics()).length, 1)
assert.equal(box.getHost(3000).split('.')[0], `3000-${box.sandboxId}`)
await assert.rejects(Sandbox.create('no-such-template'))
await assert.rejects(Sandbox.create({ apiKey: `e2b_${'0'.repeat(40)}` }), AuthenticationError)
await assert.rejects(Sandbox.connect('abcdefghijklmnop'), NotFoundError)
assert.equal(await box.kill(), true)
assert.equal(await box.kill(), false)
console.log('ok')
