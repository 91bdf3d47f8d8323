// The interop scenario with kafkajs: the steps that tests/interop/README.md lists, against a
// running broker. Prints one line a step; exits 1 at the first step that does not hold.
'use strict'

const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, logLevel } = require('kafkajs')
const lz4 = require('lz4-napi')
const snappy = require('snappyjs')
const { ZstdCodec } = require('zstd-codec')

const [bootstrap, prefix, mode] = process.argv.slice(2)
const kafka = new Kafka({
  clientId: 'kafkajs-interop',
  brokers: [bootstrap],
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 20, maxRetryTime: 200, retries: 100 },
})

function must(condition, text) {
  if (!condition) throw new Error(text)
}

async function waitFor(what, condition) {
  const deadline = Date.now() + 30000
  while (!(await condition())) {
    must(Date.now() < deadline, `timed out: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}

async function installCodecs() {
  const zstd = await new Promise((resolve) => ZstdCodec.run((codec) => resolve(new codec.Simple())))
  const simple = (compress, decompress) => () => ({
    compress: async (encoder) => Buffer.from(compress(encoder.buffer)),
    decompress: async (buffer) => Buffer.from(decompress(buffer)),
  })
  CompressionCodecs[CompressionTypes.Snappy] = simple(snappy.compress, snappy.uncompress)
  CompressionCodecs[CompressionTypes.LZ4] = simple(lz4.compressFrameSync, lz4.decompressFrameSync)
  CompressionCodecs[CompressionTypes.ZSTD] = simple((b) => zstd.compress(b), (b) => zstd.decompress(b))
}

async function createTopic(topic, numPartitions, configEntries = []) {
  const admin = kafka.admin()
  await admin.connect()
  await admin.createTopics({ waitForLeaders: true, topics: [{ topic, numPartitions, replicationFactor: 1, configEntries }] })
  await admin.disconnect()
}

async function readAll(topic, count) {
  const consumer = kafka.consumer({ groupId: `${topic}-reader`, maxWaitTimeInMs: 100 })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  const got = []
  await consumer.run({ eachMessage: async ({ partition, message }) => { got.push({ partition, ...message }) } })
  await waitFor(`${count} records of ${topic}`, () => got.length >= count)
  await consumer.disconnect()
  return got
}

async function codecs() {
  for (const [name, compression] of Object.entries(CompressionTypes)) {
    const topic = `${prefix}-codec-${name.toLowerCase()}`
    await createTopic(topic, 3)
    const producer = kafka.producer()
    await producer.connect()
    const messages = Array.from({ length: 200 }, (_, i) => ({
      key: `k${i}`, value: `value ${i} of ${name}, and again: ${i}`, headers: { n: `${i}` },
    }))
    await producer.send({ topic, compression, messages })
    await producer.disconnect()
    const want = new Map(messages.map((m) => [m.key, m.value]))
    for (const message of await readAll(topic, messages.length)) {
      must(want.get(message.key.toString()) === message.value.toString(), `${name}: wrong record`)
      must(message.headers.n.toString() === message.key.toString().slice(1), `${name}: wrong header`)
      want.delete(message.key.toString())
    }
    must(want.size === 0, `${name}: ${want.size} records are missing`)
    console.log('ok codec', name)
  }
}

async function group() {
  const topic = `${prefix}-group`
  await createTopic(topic, 6)
  const counts = new Map()
  const members = []
  for (let i = 0; i < 3; i++) {
    const consumer = kafka.consumer({ groupId: topic, maxWaitTimeInMs: 100, heartbeatInterval: 200, sessionTimeout: 10000, rebalanceTimeout: 10000 })
    const member = { consumer, assigned: 0 }
    consumer.on(consumer.events.GROUP_JOIN, (event) => {
      member.assigned = (event.payload.memberAssignment[topic] || []).length
    })
    await consumer.connect()
    await consumer.subscribe({ topic, fromBeginning: true })
    await consumer.run({
      autoCommitThreshold: 1,
      eachMessage: async ({ message }) => {
        const value = message.value.toString()
        counts.set(value, (counts.get(value) || 0) + 1)
      },
    })
    members.push(member)
  }
  const shares = (want) => () => members.map((m) => m.assigned).sort().join() === want
  await waitFor('three members share six partitions', shares('2,2,2'))
  const producer = kafka.producer()
  await producer.connect()
  const send = async (from, to) => {
    for (let i = from; i < to; i++) await producer.send({ topic, messages: [{ value: `${i}`, partition: i % 6 }] })
  }
  await send(0, 120)
  await waitFor('120 records', () => counts.size === 120)
  await members.shift().consumer.disconnect()
  await waitFor('two members share six partitions', shares('3,3'))
  await send(120, 240)
  await waitFor('240 records', () => counts.size === 240)
  for (const member of members) await member.consumer.disconnect()
  must([...counts.values()].every((count) => count === 1), 'a record came twice')
  const admin = kafka.admin()
  await admin.connect()
  const [{ partitions }] = await admin.fetchOffsets({ groupId: topic, topics: [topic] })
  must(partitions.reduce((sum, p) => sum + Number(p.offset), 0) === 240, 'committed offsets do not sum to 240')
  await admin.disconnect()
  await producer.disconnect()
  console.log('ok group of three with a rebalance')
}

async function timestamps() {
  const topic = `${prefix}-time`
  await createTopic(topic, 1)
  const producer = kafka.producer()
  await producer.connect()
  const base = Math.floor(Date.now() / 1000) * 1000 - 3600000
  await producer.send({
    topic,
    messages: Array.from({ length: 100 }, (_, i) => ({ value: `${i}`, timestamp: `${base + i * 1000}` })),
  })
  const admin = kafka.admin()
  await admin.connect()
  const [{ offset }] = await admin.fetchTopicOffsetsByTimestamp(topic, base + 49500)
  must(offset === '50', `offset by timestamp is ${offset}, not 50`)
  const consumer = kafka.consumer({ groupId: topic, maxWaitTimeInMs: 100 })
  await consumer.connect()
  await consumer.subscribe({ topic })
  let first
  consumer.run({ eachMessage: async ({ message }) => { first = first || message.value.toString() } })
  consumer.seek({ topic, partition: 0, offset })
  await waitFor('a record after the seek', () => first !== undefined)
  must(first === '50', `first record after seek is ${first}`)
  await consumer.disconnect()
  await admin.disconnect()
  await producer.disconnect()
  console.log('ok seek by timestamp')
}

async function admin() {
  const topic = `${prefix}-admin`
  await createTopic(topic, 2, [{ name: 'retention.ms', value: '3600000' }])
  const admin = kafka.admin()
  await admin.connect()
  const config = async () => {
    const described = await admin.describeConfigs({
      includeSynonyms: true, resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configNames: ['retention.ms'] }],
    })
    return described.resources[0].configEntries[0].configValue
  }
  await waitFor('the config is described', async () => (await config()) === '3600000')
  await admin.alterConfigs({
    resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries: [{ name: 'retention.ms', value: '7200000' }] }],
  })
  await waitFor('the altered config is described', async () => (await config()) === '7200000')
  await admin.createPartitions({ topicPartitions: [{ topic, count: 5 }] })
  await waitFor('five partitions', async () =>
    (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length === 5)
  await admin.deleteTopics({ topics: [topic] })
  await waitFor('the topic is gone', async () => !(await admin.listTopics()).includes(topic))
  await admin.disconnect()
  console.log('ok create, describe, alter, delete topics')
}

async function idempotent() {
  const topic = `${prefix}-idempotent`
  await createTopic(topic, 1)
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  for (let i = 0; i < 300; i += 5) {
    await producer.send({ topic, acks: -1, messages: [0, 1, 2, 3, 4].map((n) => ({ value: `${i + n}` })) })
  }
  await producer.disconnect()
  const got = await readAll(topic, 300)
  got.forEach((message, i) => must(message.value.toString() === `${i}`, `record ${i} is ${message.value}`))
  console.log('ok idempotent producer with retries')
}

async function transactional() {
  const few = new Kafka({ clientId: 'few', brokers: [bootstrap], logLevel: logLevel.NOTHING, retry: { retries: 3 } })
  const producer = few.producer({ transactionalId: prefix, idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  const error = await producer.transaction().then(() => null, (refused) => refused)
  must(error, 'a transaction began')
  console.log('transactions refused:', error.message)
  await producer.disconnect()
}

async function main() {
  if (mode === 'transactional') return transactional()
  await installCodecs()
  if (mode === 'idempotent') return idempotent()
  await codecs()
  await group()
  await timestamps()
  await admin()
}

main().then(() => process.exit(0), (error) => {
  console.log('FAILED:', error.message)
  process.exit(1)
})
