// SPDX-License-Identifier: Apache-2.0
// Network rules; test_network.py runs it in network namespaces of its own.
import assert from 'node:assert/strict'
import { create, is, run, test, Sandbox } from './tap.mjs'

const ALL = '0.0.0.0/0'
const ADDRESS = process.env.CAY_PUBLIC

async function reach(sandbox, host) {
  const { stdout } = await sandbox.commands.run(
    `python3 -c "import urllib.request as r; print(r.urlopen('http://${host}', timeout=60).status)" || true`)
  return stdout.trim()
}

test('a sandbox reaches public hosts unless it declines them', async () => {
  assert.equal(await reach(await create(), 'good.test'), '200')
  assert.equal(await reach(await create({ allowInternetAccess: false }), 'good.test'), '')
})

test('a rule that allows beats one that denies', async () => {
  const sandbox = await create({ network: { denyOut: [ALL], allowOut: [ADDRESS] } })
  assert.equal(await reach(sandbox, ADDRESS), '200')
  assert.equal(await reach(sandbox, '93.184.216.11'), '')
})

test('an update replaces the rules', async () => {
  const sandbox = await create({ network: { denyOut: [ADDRESS] } })
  assert.equal(await reach(sandbox, ADDRESS), '')
  await sandbox.updateNetwork({})
  assert.equal(await reach(sandbox, ADDRESS), '200')
  await sandbox.updateNetwork({ denyOut: [ALL], allowOut: ['good.test'] })
  assert.equal(await reach(sandbox, ADDRESS), '')
  assert.equal(await reach(sandbox, 'good.test'), '200')
})

test('a rule that denies leaves the rest open', async () => {
  const sandbox = await create({ network: { denyOut: [ADDRESS] } })
  assert.equal(await reach(sandbox, ADDRESS), '')
  assert.equal(await reach(sandbox, '93.184.216.11'), '200')
  const closed = await create({ network: { denyOut: [ALL] } })
  assert.equal(await reach(closed, ADDRESS), '')
})

test('several addresses are allowed in a closed sandbox', async () => {
  const sandbox = await create({
    network: { denyOut: ({ allTraffic }) => [allTraffic], allowOut: [ADDRESS, '93.184.216.11'] } })
  assert.equal(await reach(sandbox, ADDRESS), '200')
  assert.equal(await reach(sandbox, '93.184.216.11'), '200')
})

test('an update changes the access to the internet', async () => {
  const sandbox = await create()
  await sandbox.updateNetwork({ allowInternetAccess: false })
  assert.equal(await reach(sandbox, 'good.test'), '')
  assert.equal((await sandbox.getInfo()).allowInternetAccess, false)
  await Sandbox.updateNetwork(sandbox.sandboxId, { allowInternetAccess: true })
  assert.equal(await reach(sandbox, 'good.test'), '200')
  await sandbox.kill()
  await assert.rejects(sandbox.updateNetwork({}), is('SandboxNotFoundError', 'NotFoundError'))
})

test('rules are shown', async () => {
  const sandbox = await create({ network: { denyOut: [ALL], allowOut: ['*.wild.test'], allowPublicTraffic: false } })
  const { network } = await sandbox.getInfo()
  assert.deepEqual(network.allowOut, ['*.wild.test'])
  assert.deepEqual(network.denyOut, [ALL])
  assert.equal(network.allowPublicTraffic, false)
})

await run()
