// SPDX-License-Identifier: Apache-2.0
// The official SDK in JavaScript as a client of `cay serve --mcp`.
import assert from 'node:assert'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'

const [url, key] = process.argv.slice(2)
const client = new Client({ name: 'test', version: '1' }, { capabilities: {} })
const transport = new StreamableHTTPClientTransport(new URL(url), {
  requestInit: { headers: { 'X-API-Key': key } },
})
await client.connect(transport)
const call = (name, args, options) => client.callTool({ name, arguments: args }, undefined, options)

const { tools } = await client.listTools()
assert(tools.some(tool => tool.name === 'run_command'))
await call('write_file', { path: 'a', content: 'written' })
assert.equal((await call('run_command', { command: 'cat a' })).structuredContent.stdout, 'written')
const failed = await call('read_file', { path: 'none' })
assert(failed.isError && failed.content[0].text.startsWith('not-found'))

// The code goes on when the progress has arrived.
let progress = ''
const wait = 'import os, time\nprint("now")\nwhile not os.path.exists("go"):\n    time.sleep(0.01)\n6 * 7'
const code = await call('run_code', { code: wait }, {
  onprogress: one => {
    progress += one.message
    if (progress.includes('now')) call('write_file', { path: 'go', content: '' })
  },
})
assert.equal(code.structuredContent.results[0].text, '42')

const cancel = new AbortController()
const long = call('run_command', { command: 'touch began; sleep 1000.75' }, { signal: cancel.signal })
const listed = async name => JSON.stringify((await call(name, {})).structuredContent)
while (!(await listed('list_files')).includes('began'));
cancel.abort('enough')
await assert.rejects(long)
while ((await listed('list_processes')).includes('1000.75'));

await transport.terminateSession()
await client.close()
console.log('done')
