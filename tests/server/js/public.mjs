// SPDX-License-Identifier: Apache-2.0
// Ports of sandboxes by their names, over TLS; test_public.py runs it.
import assert from 'node:assert/strict'
import { create, run, test, until, Sandbox } from './tap.mjs'

const TOKEN = 'e2b-traffic-access-token'
const SITE = `
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(("Host: " + self.headers["Host"]).encode())
    def log_message(self, *words): pass
http.server.ThreadingHTTPServer(("", 8000), Handler).serve_forever()
`

async function site(options) {
  const sandbox = await create(options)
  await sandbox.files.write('site.py', SITE)
  await sandbox.commands.run('python3 site.py', { background: true })
  return { sandbox, url: `https://${sandbox.getHost(8000)}/` }
}

const status = async (url, headers = {}) => (await fetch(url, { headers })).status
const opened = (url, headers) => until(async () => await status(url, headers) === 200, 'the port is not open')

test('a port is reached by its name', async () => {
  for (const options of [{}, { network: { allowPublicTraffic: true } }]) {
    const { sandbox, url } = await site(options)
    await opened(url)
    assert.equal(await (await fetch(url)).text(), `Host: ${sandbox.getHost(8000)}`)
    assert.ok(!sandbox.trafficAccessToken)
  }
})

test('a port without public traffic needs the token of its sandbox', async () => {
  const { sandbox, url } = await site({ network: { allowPublicTraffic: false } })
  assert.ok(sandbox.trafficAccessToken)
  await opened(url, { [TOKEN]: sandbox.trafficAccessToken })
  const refused = await fetch(url)
  assert.equal(refused.status, 403)
  assert.equal((await refused.json()).code, 403)
  assert.equal(await status(url, { [TOKEN]: 'wrong' }), 403)
  const other = await create({ network: { allowPublicTraffic: false } })
  assert.equal(await status(url, { [TOKEN]: other.trafficAccessToken }), 403)
  const again = await Sandbox.connect(sandbox.sandboxId)
  assert.equal(again.trafficAccessToken, sandbox.trafficAccessToken)
})

test('a mask replaces the host that a port sees', async () => {
  const { url } = await site({ network: { maskRequestHost: 'custom-host.example.com:${PORT}' } })
  await opened(url)
  assert.equal(await (await fetch(url)).text(), 'Host: custom-host.example.com:8000')
})

await run()
