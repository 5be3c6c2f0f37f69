// SPDX-License-Identifier: Apache-2.0
// Volumes and their files.
import assert from 'node:assert/strict'
import { create, is, run, test } from './tap.mjs'

const { Volume } = await import(process.argv[2])

async function withVolume(name, body) {
  const volume = await Volume.create(name)
  try {
    await body(volume)
  } finally {
    assert.equal(await Volume.destroy(volume.volumeId), true)
  }
}

test('the files of a volume are written, read, listed and removed', () => withVolume('js-files', async (volume) => {
  const written = await volume.writeFile('/a.txt', 'text')
  assert.deepEqual([written.path, written.type, written.size, written.mode], ['/a.txt', 'file', 4, 0o644])
  assert.equal(await volume.readFile('a.txt'), 'text')
  await volume.makeDir('/d/e', { force: true, mode: 0o700, uid: 1000, gid: 1001 })
  const made = await volume.getInfo('/d/e')
  assert.deepEqual([made.mode, made.uid, made.gid, made.type], [0o700, 1000, 1001, 'directory'])
  assert.ok(made.mtime instanceof Date)
  const bytes = new Uint8Array(300_000).map((_, index) => index)
  await volume.writeFile('/d/b', new Blob([bytes]))
  assert.deepEqual(await volume.readFile('/d/b', { format: 'bytes' }), bytes)
  assert.deepEqual((await volume.list('/')).map((one) => one.path).sort(), ['/a.txt', '/d'])
  assert.equal((await volume.list('/', { depth: 3 })).length, 4)
  assert.equal((await volume.updateMetadata('/d/b', { mode: 0o600 })).mode, 0o600)
  await volume.remove('/d')
  assert.equal(await volume.exists('/d'), false)
}))

test('a stream is written and read', () => withVolume('js-stream', async (volume) => {
  const piece = new Uint8Array(1 << 20).fill(120)
  const stream = new ReadableStream({
    count: 0,
    pull(controller) {
      if (this.count++ === 16) controller.close()
      else controller.enqueue(piece)
    } })
  assert.equal((await volume.writeFile('large', stream)).size, 16 << 20)
  let total = 0
  for await (const chunk of await volume.readFile('large', { format: 'stream' })) total += chunk.length
  assert.equal(total, 16 << 20)
}))

test('what is missing and what exists is an error', () => withVolume('js-errors', async (volume) => {
  await assert.rejects(volume.readFile('no'), is('NotFoundError', 'VolumePathNotFoundError'))
  await assert.rejects(volume.writeFile('no/f', 'x'), is('NotFoundError', 'VolumePathNotFoundError'))
  await volume.writeFile('f', 'x')
  await assert.rejects(volume.writeFile('f', 'y'), /409/)
  await volume.writeFile('f', 'y', { force: true })
  assert.equal(await volume.readFile('f'), 'y')
}))

test('a sandbox and the API see the same files', () => withVolume('js-both', async (volume) => {
  await volume.writeFile('from-api', 'api')
  const sandbox = await create({ volumeMounts: { '/v': volume } })
  assert.equal(await sandbox.files.read('/v/from-api'), 'api')
  await sandbox.commands.run('echo inside > /v/from-inside; ln -s /etc /v/out')
  assert.equal(await volume.readFile('from-inside'), 'inside\n')
  await assert.rejects(volume.readFile('out/passwd'), /400/)
  await sandbox.kill()
}))

await run()
