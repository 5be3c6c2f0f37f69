// SPDX-License-Identifier: Apache-2.0
// What the scripts share: PACKAGE, the first argument, is installed in their directory.  A
// script registers tests and calls run(), which prints TAP.
import assert from 'node:assert/strict'

export const { Sandbox } = await import(process.argv[2])
const PATIENCE = 60_000 // ms: for a machine that is very slow, not for waiting
const tests = []
export const test = (name, body) => tests.push({ name, body })
const alive = new Set()

export async function create(...options) {
  const sandbox = await Sandbox.create(...options)
  alive.add(sandbox)
  return sandbox
}

let kept
export async function shared() {
  kept ??= await create({ timeoutMs: 3_600_000 })
  return kept
}

export async function until(condition, what) {
  const deadline = Date.now() + PATIENCE
  for (;;) {
    const value = await condition()
    if (value) return value
    assert.ok(Date.now() < deadline, String(what))
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
}

export const is = (...names) => (error) => names.includes(error.constructor.name)
  || assert.fail(`${error.constructor.name}: ${error.message}`)

export async function run() {
  console.log(`1..${tests.length}`)
  for (const [number, { name, body }] of tests.entries()) {
    try {
      await body()
      console.log(`ok ${number + 1} - ${name}`)
    } catch (error) {
      console.log(`not ok ${number + 1} - ${name}`)
      console.log(String(error.stack ?? error).replace(/^/gm, '# '))
    }
  }
  await Promise.all([...alive].map((sandbox) => sandbox.kill().catch(() => {})))
  process.exit(0)
}
