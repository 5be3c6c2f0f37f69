// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { Sandbox, NotFoundError, InvalidArgumentError } from 'e2b'

const box = await Sandbox.create({ timeoutMs: 60000 })
const files = box.files

for (const size of [0, 1, 65536, 5_000_001]) {
  const data = randomBytes(size)
  await files.write('file', new Uint8Array(data).buffer)
  assert.deepEqual(Buffer.from(await files.read('file', { format: 'bytes' })), data)
}
await files.write('stream', new Blob(['from a blob']))
assert.equal(await files.read('stream'), 'from a blob')
assert.equal(await (await files.read('stream', { format: 'blob' })).text(), 'from a blob')

for (const name of ['a b', 'ü漢', "q'\"", '%41', '+&;', '#?', 'new\nline']) {
  const info = await files.write(`d/${name}`, 'x')
  assert.equal(info.path, `/home/user/d/${name}`)
  assert.equal(await files.read(`d/${name}`), 'x')
  assert.deepEqual((await files.list('d')).map((entry) => entry.name), [name])
  await files.rename(`d/${name}`, 'd/renamed')
  await files.remove('d/renamed')
}
const infos = await files.write([
  { path: 'm/1', data: '1' }, { path: 'm/2', data: '22' }, { path: 'm/3', data: '' }])
assert.deepEqual(infos.map((info) => info.path),
  ['/home/user/m/1', '/home/user/m/2', '/home/user/m/3'])
assert.equal(await files.read('m/2'), '22')
assert.equal(await files.read('m/3'), '')

assert.equal(await files.makeDir('x/y'), true)
assert.equal(await files.makeDir('x/y'), false)
assert.equal(await files.exists('x/y'), true)
await assert.rejects(files.read('nope'), NotFoundError)
await assert.rejects(files.list('m/1'), InvalidArgumentError)
assert.equal((await files.getInfo('m/2')).size, 2)

const events = []
const watch = await files.watchDir('x', (event) => events.push(`${event.type}:${event.name}`),
  { recursive: true })
await files.write('x/y/f', '1')
await files.write('x/y/f', '2')
await files.rename('x/y/f', 'x/y/g')
for (let i = 0; i < 500 && !events.includes('create:y/g'); i++)
  await new Promise((resolve) => setTimeout(resolve, 20))
for (const wanted of ['create:y/f', 'write:y/f', 'rename:y/f', 'create:y/g'])
  assert.ok(events.includes(wanted), `${wanted} in ${events}`)
await watch.stop()

const url = await box.downloadUrl('m/2', { useSignatureExpiration: 60 })
assert.equal(await (await fetch(url)).text(), '22')
assert.equal((await fetch(url.replace('m%2F2', 'm%2F1'))).status, 401)
const form = new FormData()
form.append('file', new Blob(['sent']), 'up/by form')
const reply = await fetch(await box.uploadUrl(), { method: 'POST', body: form })
assert.equal(reply.status, 200)
assert.equal(await files.read('up/by form'), 'sent')
await box.kill()
console.log('ok')
