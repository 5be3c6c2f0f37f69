// SPDX-License-Identifier: Apache-2.0
// Template.build and the rest of Template; test_build.py runs it.
import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { create, is, run, test, Sandbox } from './tap.mjs'

const { Template, waitForTimeout } = await import(process.argv[2])

function context() {
  const folder = mkdtempSync(join(tmpdir(), 'cay-js-'))
  mkdirSync(join(folder, 'folder'))
  writeFileSync(join(folder, 'folder', 'test.txt'), 'This is a test file.')
  symlinkSync('test.txt', join(folder, 'folder', 'link.txt'))
  symlinkSync('/folder/test.txt', join(folder, 'folder', 'absolute.txt'))
  symlinkSync('no-such-file', join(folder, 'folder', 'broken.txt'))
  return folder
}

test('a template is built from files and commands', async () => {
  const template = Template({ fileContextPath: context() }).fromBaseImage()
    .copy('folder/*', 'folder', { forceUpload: true })
    .runCmd('cat folder/test.txt').setWorkdir('/app')
    .setStartCmd('echo started > /tmp/started; sleep 1000', waitForTimeout(100))
  const entries = []
  const info = await Template.build(template, 'js-folder', { onBuildLogs: (entry) => entries.push(entry.message) })
  assert.ok(entries.includes('This is a test file.'))
  assert.ok(info.templateId && info.buildId)
  const sandbox = await create('js-folder')
  const { stdout } = await sandbox.commands.run('pwd; cat /tmp/started; cd ~/folder; cat link.txt; readlink broken.txt')
  assert.equal(stdout, '/app\nstarted\nThis is a test file.no-such-file\n')
})

test('a template is built from another one', async () => {
  await Template.build(Template().fromTemplate('base').runCmd('echo one > ~/one'), 'js-one:a')
  await Template.build(Template().fromTemplate('js-one:a').skipCache().runCmd('cat ~/one > ~/two'), 'js-two')
  const sandbox = await create('js-two')
  assert.equal(await sandbox.files.read('two'), 'one\n')
})

test('a build in the background is reported as building', async () => {
  const template = Template().fromBaseImage().skipCache().runCmd('sleep 5')
  const info = await Template.buildInBackground(template, 'js-background')
  let { status } = await Template.getBuildStatus(info)
  assert.equal(status, 'building')
  while (status === 'building')
    ({ status } = await Template.getBuildStatus(info))
  assert.equal(status, 'ready')
})

test('a user that does not exist fails the build', async () => {
  await assert.rejects(Template.build(Template().fromBaseImage().runCmd('whoami', { user: 'root123' }), 'js-user'), (error) =>
    is('BuildError')(error) && error.message.includes(
      "failed to run command 'whoami': command failed: unauthenticated: invalid username: 'root123'"))
})

test('tags are assigned and removed', async () => {
  await Template.build(Template().fromBaseImage().runCmd('true'), 'js-tags:v1')
  const assigned = await Template.assignTags('js-tags:v1', ['stable', 'latest'])
  assert.deepEqual(assigned.tags, ['stable', 'latest'])
  assert.ok(await Template.exists('js-tags:stable'))
  await Template.removeTags('js-tags', 'stable')
  assert.ok(!await Template.exists('js-tags:stable'))
  await assert.rejects(Template.assignTags('js-tags:v1', ':x'))
  await assert.rejects(Template.assignTags('js-tags:v1', 'js-tags:'))
})

test('a template exists or does not', async () => {
  assert.ok(await Template.exists('base'))
  assert.ok(!await Template.exists('js-no-such-template'))
})

await run()
