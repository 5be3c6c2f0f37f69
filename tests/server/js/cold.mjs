// SPDX-License-Identifier: Apache-2.0
// cold.mjs PACKAGE: pauses without memory, with the E2B SDK for JavaScript.  Prints TAP.
import assert from 'node:assert/strict'

import { create, run, Sandbox, test, until } from './tap.mjs'

const boot = async (sandbox) => (await sandbox.commands.run('cat /proc/sys/kernel/random/boot_id')).stdout

test('a pause without memory keeps files and boots again', async () => {
  const sandbox = await create({ envs: { A: 'b' } })
  await sandbox.files.write('file', 'kept')
  await sandbox.commands.run('sleep 3600', { background: true })
  const before = await boot(sandbox)
  assert.equal(await sandbox.pause({ keepMemory: false }), true)
  assert.equal(await sandbox.pause({ keepMemory: false }), false)
  assert.equal(await sandbox.isRunning(), false)
  const again = await Sandbox.connect(sandbox.sandboxId)
  assert.equal(again.sandboxId, sandbox.sandboxId)
  assert.equal(await again.files.read('file'), 'kept')
  assert.deepEqual(await again.commands.list(), [])
  assert.notEqual(await boot(again), before)
  assert.equal((await again.commands.run('echo $A')).stdout, 'b\n')
})

test('a pause with memory keeps the boot and the processes', async () => {
  const sandbox = await create()
  const process = await sandbox.commands.run('sleep 3600', { background: true })
  const before = await boot(sandbox)
  assert.equal(await sandbox.pause(), true)
  const again = await Sandbox.connect(sandbox.sandboxId)
  assert.equal(await boot(again), before)
  assert.deepEqual((await again.commands.list()).map((one) => one.pid), [process.pid])
})

test('a sandbox is paused without memory at its end', async () => {
  const sandbox = await create({
    timeoutMs: 3000, lifecycle: { onTimeout: { action: 'pause', keepMemory: false } },
  })
  const before = await boot(sandbox)
  await until(async () => (await sandbox.getInfo()).state === 'paused', 'it runs on')
  const again = await Sandbox.connect(sandbox.sandboxId)
  assert.equal((await again.getInfo()).state, 'running')
  assert.notEqual(await boot(again), before)
})

await run()
