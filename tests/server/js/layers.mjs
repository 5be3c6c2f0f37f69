// SPDX-License-Identifier: Apache-2.0
// layers.mjs PACKAGE: forks and snapshots, with the E2B SDK for JavaScript.  Prints TAP.
import assert from 'node:assert/strict'

import { create, is, run, Sandbox, test } from './tap.mjs'

async function all(options) {
  const pages = Sandbox.listSnapshots(options)
  const found = []
  while (pages.hasNext) found.push(...await pages.nextItems())
  return found.map((one) => one.snapshotId)
}

test('a fork has the files and a life of its own', async () => {
  const sandbox = await create({ envs: { A: 'b' }, metadata: { who: 'me' } })
  await sandbox.files.write('file', 'first')
  const [fork, ...others] = await sandbox.fork()
  assert.equal(others.length, 0)
  assert.notEqual(fork.sandboxId, sandbox.sandboxId)
  assert.ok(await fork.isRunning() && await sandbox.isRunning())
  await fork.files.write('own', 'x')
  assert.equal(await fork.files.read('file'), 'first')
  assert.equal(await sandbox.files.exists('own'), false)
  assert.equal((await fork.commands.run('echo $A')).stdout, 'b\n')
  assert.deepEqual((await fork.getInfo()).metadata, { who: 'me' })
  await fork.kill()
})

test('several forks are created by the id of a sandbox', async () => {
  const sandbox = await create()
  const forks = await Sandbox.fork(sandbox.sandboxId, { count: 2 })
  assert.equal(new Set(forks.map((one) => one.sandboxId)).size, 2)
  for (const fork of forks) {
    assert.ok(await fork.isRunning())
    await fork.kill()
  }
  await sandbox.kill()
  await assert.rejects(sandbox.fork(), is('SandboxNotFoundError', 'NotFoundError'))
})

test('sandboxes of a snapshot have its files and are isolated', async () => {
  const sandbox = await create()
  await sandbox.files.write('dir/file', 'kept')
  const snapshot = await sandbox.createSnapshot()
  assert.ok(snapshot.snapshotId && await sandbox.isRunning())
  const [one, two] = [await create(snapshot.snapshotId), await create(snapshot.snapshotId)]
  await one.files.write('dir/file', 'changed')
  assert.equal(await two.files.read('dir/file'), 'kept')
  assert.deepEqual(await all({ sandboxId: sandbox.sandboxId }), [snapshot.snapshotId])
  assert.ok((await all()).includes(snapshot.snapshotId))
  await one.kill()
  await two.kill()
  assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), true)
  assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), false)
})

test('a snapshot is found by its name', async () => {
  const sandbox = await create()
  const name = `javascript-${sandbox.sandboxId}`
  const snapshot = await sandbox.createSnapshot({ name })
  assert.ok(snapshot.names.some((one) => one.includes(name)))
  assert.deepEqual(await all({ name }), [snapshot.snapshotId])
  assert.deepEqual(await all({ name: 'no-such' }), [])
  assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), true)
})

await run()
