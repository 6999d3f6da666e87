// One IPFS node (Helia) on the loopback, behind the few calls of Kubo's RPC API that tests make.
// No bootstrap peers, no delegated routers, no gateways: it talks to those it is told of, on 127.0.0.1.

import { createServer } from 'node:http'
import { noise } from '@chainsafe/libp2p-noise'
import { yamux } from '@chainsafe/libp2p-yamux'
import { withBitswap } from '@helia/bitswap'
import { withLibp2p } from '@helia/libp2p'
import * as dagCbor from '@ipld/dag-cbor'
import { CarReader } from '@ipld/car'
import { identify } from '@libp2p/identify'
import { tcp } from '@libp2p/tcp'
import { multiaddr } from '@multiformats/multiaddr'
import { createHeliaLight } from 'helia'
import { createLibp2p } from 'libp2p'
import { CID } from 'multiformats/cid'

const libp2p = await createLibp2p({
  addresses: { listen: ['/ip4/127.0.0.1/tcp/0'] },
  transports: [tcp()],
  connectionEncrypters: [noise()],
  streamMuxers: [yamux()],
  services: { identify: identify() }
})
const node = withBitswap(withLibp2p(createHeliaLight({ codecs: [dagCbor] }), libp2p))
await node.start()

async function bodyOf (request) {
  const form = await new Response(request, { headers: request.headers, duplex: 'half' }).formData()
  const file = [...form.values()][0]
  return new Uint8Array(await file.arrayBuffer())
}

async function whole (value) {
  const got = await value
  if (got instanceof Uint8Array) return got
  const parts = []
  for await (const part of got) parts.push(part)
  return Buffer.concat(parts)
}

const calls = {
  async 'dag/import' (request) {
    const car = await CarReader.fromBytes(await bodyOf(request))
    for await (const { cid, bytes } of car.blocks()) await node.blockstore.put(cid, bytes)
    const lines = []
    for (const root of await car.getRoots()) {
      let problem = ''
      try {
        const signal = AbortSignal.timeout(5000)
        if (!await node.pins.isPinned(root)) { // Kubo takes a root again, Helia's pins don't
          for await (const _ of node.pins.add(root, { signal })) { /* pinned by walking */ }
        }
      } catch (error) {
        problem = String(error)
      }
      lines.push(JSON.stringify({ Root: { Cid: { '/': root.toString() }, PinErrorMsg: problem } }))
    }
    return lines.join('\n')
  },
  async 'block/get' (_, query) {
    return await whole(node.blockstore.get(CID.parse(query.get('arg')), { signal: AbortSignal.timeout(20000) }))
  },
  async 'pin/ls' () {
    const keys = {}
    for await (const pin of node.pins.ls()) keys[pin.cid.toString()] = { Type: 'recursive' }
    return JSON.stringify({ Keys: keys })
  },
  async id () {
    return JSON.stringify({ ID: libp2p.peerId.toString(), Addresses: libp2p.getMultiaddrs().map(String) })
  },
  async 'swarm/connect' (_, query) {
    await libp2p.dial(multiaddr(query.get('arg')))
    return JSON.stringify({ Strings: ['connected'] })
  }
}

const server = createServer(async (request, response) => {
  const { pathname, searchParams } = new URL(request.url, 'http://127.0.0.1')
  try {
    const answer = await calls[pathname.replace('/api/v0/', '')](request, searchParams)
    response.writeHead(200).end(answer)
  } catch (error) {
    response.writeHead(500).end(String(error?.stack ?? error))
  }
})
server.listen(0, '127.0.0.1', () => console.log(server.address().port))
process.stdin.on('end', () => process.exit(0)).resume() // whoever started it has gone
