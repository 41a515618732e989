// A program that uses @platformatic/kafka: administration, records, groups of both protocols.
// Usage: platformatic-life.mjs BOOTSTRAP PREFIX. Prints one line for each result; the last is "node life done".
import assert from 'node:assert/strict'
import { Admin, Consumer, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka'

const [bootstrap, prefix] = process.argv.slice(2)
const base = { clientId: prefix, bootstrapBrokers: [bootstrap], retries: 3 }
const topic = `${prefix}-t`, LIMIT_MS = 60_000, stampMs = Date.now() - 10_000

async function until(what, condition) {
  const end = Date.now() + LIMIT_MS
  while (!(await condition())) {
    assert(Date.now() < end, `never came: ${what}`)
    await new Promise(done => setTimeout(done, 50))
  }
}

async function topics(admin) {
  const [told] = await admin.createTopics({ topics: [topic], partitions: 2, replicas: 1, configs: [{ name: 'retention.ms', value: '-1' }] })
  assert.deepEqual([told.name, told.partitions, told.configuration['retention.ms']], [topic, 2, '-1'])
  await assert.rejects(admin.createTopics({ topics: [topic], partitions: 2, replicas: 1 }))
  await admin.createPartitions({ topics: [{ name: topic, count: 4, assignments: null }] })
  assert((await admin.listTopics()).includes(topic))
  await until('four partitions', async () => {
    const metadata = await admin.metadata({ topics: [topic], forceUpdate: true })
    return metadata.topics.get(topic).partitions.length === 4
  })
  const resource = { resourceType: 2, resourceName: topic }
  const retention = async () => {
    const [{ configs }] = await admin.describeConfigs({ resources: [{ ...resource, configurationKeys: ['retention.ms'] }] })
    return configs.find(one => one.name === 'retention.ms').value
  }
  assert.equal(await retention(), '-1')
  const change = { name: 'retention.ms', configOperation: 0, value: '7200000' }
  await admin.incrementalAlterConfigs({ resources: [{ ...resource, configs: [change] }] })
  await until('the configuration that was set', async () => await retention() === '7200000')
  const directories = await admin.describeLogDirs({ topics: [{ name: topic, partitions: [0] }] })
  assert.equal(directories.length, 1)
  console.log('ok: topics, partitions, configurations, log directories')
}

async function records() {
  for (const settings of [{}, { idempotent: true, compression: 'gzip' }]) {
    const producer = new Producer({ ...base, ...settings, serializers: stringSerializers })
    const messages = Array.from({ length: 200 }, (_, number) => ({
      topic, key: `k${number}`, value: `v${number}`, headers: { h: `${number}` }, partition: number % 4, timestamp: BigInt(stampMs + number)
    }))
    const { offsets } = await producer.send({ messages, acks: -1 })
    assert.equal(offsets.length, 4)
    await producer.close()
  }
  console.log('ok: records, plain and idempotent with gzip')
}

async function group(admin, protocol) {
  const groupId = `${prefix}-${protocol}`, seen = []
  const timing = protocol === 'classic' ? { sessionTimeout: 10_000, heartbeatInterval: 300 } : {}
  const start = async () => {
    const consumer = new Consumer({ ...base, groupId, groupProtocol: protocol, ...timing, deserializers: stringDeserializers })
    const stream = await consumer.consume({ topics: [topic], mode: 'committed', fallbackMode: 'earliest', autocommit: 200 })
    stream.on('data', message => {
      assert.equal(message.headers.get('h'), message.key.slice(1))
      seen.push(`${message.partition}@${message.offset}`)
    })
    return { consumer, owned: () => (consumer.assignments ?? []).flatMap(one => one.partitions).length }
  }
  const first = await start()
  await until('all records', () => new Set(seen).size === 400)
  assert.equal(seen.length, 400, 'each record once')
  const second = await start()
  await until('half each', () => first.owned() === 2 && second.owned() === 2)
  await second.consumer.close(true)
  await until('all again', () => first.owned() === 4)
  const committed = async () => (await first.consumer.listCommittedOffsets({ topics: [{ topic, partitions: [0, 1, 2, 3] }] })).get(topic)
  await until('commits', async () => (await committed()).every(one => one === 100n))
  const [offsets] = [...(await first.consumer.listOffsets({ topics: [topic] })).values()]
  assert.deepEqual(offsets, Array(4).fill(100n))
  await first.consumer.close(true)
  assert((await admin.listGroups({ types: ['classic', 'consumer'] })).has(groupId))
  await until('an empty group', async () => (await admin.listGroups({ types: ['classic', 'consumer'] })).get(groupId).state === 'EMPTY')
  await admin.deleteGroups({ groups: [groupId] })
  await assert.rejects(admin.deleteGroups({ groups: [groupId] }))
  console.log(`ok: a group of two, ${protocol} protocol; commits; the group is deleted`)
}

async function transactions() {
  const producer = new Producer({ ...base, idempotent: true, transactionalId: prefix, serializers: stringSerializers })
  const begun = Date.now()
  try {
    await (await producer.beginTransaction()).abort()
    console.log('ok: transactions are served')
  } catch (error) {
    assert(Date.now() - begun < 30_000, `the refusal of transactions takes ${Date.now() - begun} ms: ${error}`)
    console.log(`ok: transactions are refused: ${error.message}`)
  }
  await producer.close()
}

const admin = new Admin({ ...base })
await topics(admin)
await records()
await group(admin, 'classic')
await group(admin, 'consumer')
await transactions()
await admin.deleteTopics({ topics: [topic] })
await until('the topic is gone', async () => !(await admin.listTopics()).includes(topic))
await admin.close()
console.log('node life done')
process.exit(0)
