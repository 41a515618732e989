// A program that uses kafkajs: administration, records, groups. Usage: kafkajs-life.mjs BOOTSTRAP PREFIX
// Prints one line for each result; the last is "node life done". Exit status 1 with the failure.
import assert from 'node:assert/strict'
import kafkajs from 'kafkajs'

const { CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = kafkajs
const [bootstrap, prefix] = process.argv.slice(2)
const kafka = new Kafka({ clientId: prefix, brokers: [bootstrap], logLevel: logLevel.NOTHING })
const topic = `${prefix}-t`, LIMIT_MS = 60_000, stampMs = Date.now() - 10_000

async function until(what, condition) {
  const end = Date.now() + LIMIT_MS
  while (!(await condition())) {
    assert(Date.now() < end, `never came: ${what}`)
    await new Promise(done => setTimeout(done, 50))
  }
}

async function topics(admin) {
  const wish = { topics: [{ topic, numPartitions: 2, configEntries: [{ name: 'retention.ms', value: '-1' }] }] }
  assert.equal(await admin.createTopics(wish), true)
  assert.equal(await admin.createTopics(wish), false, 'a topic is created once')
  await admin.createPartitions({ topicPartitions: [{ topic, count: 4 }] })
  assert((await admin.listTopics()).includes(topic))
  await until('four partitions', async () => {
    const { topics: [told] } = await admin.fetchTopicMetadata({ topics: [topic] })
    return `${told.partitions.map(one => one.partitionId).sort()}` === '0,1,2,3'
  })
  assert.equal((await admin.describeCluster()).brokers.length, 1)
  const resource = { type: ConfigResourceTypes.TOPIC, name: topic }
  const retention = async () => {
    const { resources: [{ configEntries }] } = await admin.describeConfigs({ resources: [resource] })
    return configEntries.find(one => one.configName === 'retention.ms').configValue
  }
  assert.equal(await retention(), '-1')
  await admin.alterConfigs({ resources: [{ ...resource, configEntries: [{ name: 'retention.ms', value: '7200000' }] }] })
  await until('the configuration that was set', async () => await retention() === '7200000')
  await assert.rejects(admin.fetchTopicMetadata({ topics: [`${prefix}-none/`] }))
  console.log('ok: topics, partitions, configurations')
}

async function records(admin) {
  for (const [settings, compression] of [[{}, CompressionTypes.None], [{ idempotent: true }, CompressionTypes.GZIP]]) {
    const producer = kafka.producer(settings)
    await producer.connect()
    const messages = Array.from({ length: 200 }, (_, number) => ({
      key: `k${number}`, value: `v${number}`, headers: { h: `${number}` }, partition: number % 4, timestamp: `${stampMs + number}`
    }))
    const told = await producer.send({ topic, compression, acks: -1, messages })
    assert.equal(told.length, 4)
    await producer.disconnect()
  }
  const ends = await admin.fetchTopicOffsets(topic)
  assert.deepEqual(ends.map(one => [one.low, one.high]), Array(4).fill(['0', '100']))
  const timed = await admin.fetchTopicOffsetsByTimestamp(topic, stampMs + 100)
  assert.deepEqual(timed.map(one => one.offset), Array(4).fill('25'))
  console.log('ok: records, plain and idempotent with gzip; offsets by time')
}

function member(groupId, seen) {
  const consumer = kafka.consumer({ groupId, sessionTimeout: 10_000, heartbeatInterval: 300 })
  const state = { consumer, owned: [], failure: null }
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => { state.owned = payload.memberAssignment[topic] ?? [] })
  consumer.on(consumer.events.CRASH, ({ payload }) => {
    if (!payload.restart) state.failure = payload.error // a coordinator that is still loading is asked again
  })
  state.start = async () => {
    await consumer.connect()
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    await consumer.run({ eachMessage: async ({ partition, message }) => {
      assert.equal(message.headers.h.toString(), message.key.toString().slice(1))
      seen.push(`${partition}@${message.offset}`)
    } })
  }
  return state
}

async function groups(admin) {
  const groupId = `${prefix}-g`, seen = []
  const first = member(groupId, seen), second = member(groupId, seen)
  await first.start()
  await until('all records', () => new Set(seen).size === 400)
  assert.equal(seen.length, 400, 'each record once')
  await second.start()
  await until('half each', () => first.owned.length === 2 && second.owned.length === 2)
  const { groups: [told] } = await admin.describeGroups([groupId])
  assert.deepEqual([told.state, told.members.length], ['Stable', 2])
  await second.consumer.disconnect()
  await until('all again', () => first.owned.length === 4)
  first.consumer.pause([{ topic }])
  first.consumer.seek({ topic, partition: 0, offset: '90' })
  first.consumer.resume([{ topic }])
  await until('ten records again', () => seen.length >= 410)
  await first.consumer.disconnect()
  assert.deepEqual([first.failure, second.failure], [null, null])
  const committed = await admin.fetchOffsets({ groupId, topics: [topic] })
  assert.deepEqual(committed[0].partitions.map(one => one.offset), Array(4).fill('100'))
  await admin.setOffsets({ groupId, topic, partitions: [{ partition: 1, offset: '7' }] })
  await admin.resetOffsets({ groupId, topic, earliest: true })
  const reset = await admin.fetchOffsets({ groupId, topics: [topic] })
  assert.deepEqual(reset[0].partitions.map(one => one.offset), Array(4).fill('-2')) // kafkajs' word for the earliest
  assert((await admin.listGroups()).groups.some(one => one.groupId === groupId))
  await admin.deleteGroups([groupId])
  await assert.rejects(admin.deleteGroups([groupId]))
  console.log('ok: a group of two, pause, seek, commits; administration of groups')
}

async function transactions(admin) {
  const out = `${prefix}-tx`, groupId = `${prefix}-tx-g`
  await admin.createTopics({ topics: [{ topic: out, numPartitions: 3 }] })
  const settings = { transactionalId: prefix, maxInFlightRequests: 1, idempotent: true }
  const producer = kafka.producer(settings)
  await producer.connect()
  const committed = []
  for (let round = 0; round < 6; round++) {
    const transaction = await producer.transaction()
    const messages = Array.from({ length: 30 }, (_, number) => ({ value: `${round}-${number}`, partition: number % 3 }))
    await transaction.send({ topic: out, messages })
    const offsets = [{ topic, partitions: [{ partition: 0, offset: `${round + 1}` }] }]
    await transaction.sendOffsets({ consumerGroupId: groupId, topics: offsets })
    if (round % 2 === 1) await transaction.abort()
    else {
      await transaction.commit()
      committed.push(...messages.map(one => one.value))
    }
  }
  const left = await producer.transaction()
  await left.send({ topic: out, messages: [{ value: 'left open', partition: 0 }] })
  const heir = kafka.producer(settings)
  await heir.connect()
  const last = await heir.transaction()
  await last.send({ topic: out, messages: [0, 1, 2].map(partition => ({ value: `end-${partition}`, partition })) })
  await assert.rejects(left.commit(), 'the first producer is fenced')
  await last.commit()
  const seen = []
  const consumer = kafka.consumer({ groupId: `${prefix}-tx-r`, readUncommitted: false })
  await consumer.connect()
  await consumer.subscribe({ topics: [out], fromBeginning: true })
  await consumer.run({ eachMessage: async ({ message }) => { seen.push(message.value.toString()) } })
  await until('all committed records', () => [0, 1, 2].every(partition => seen.includes(`end-${partition}`)))
  assert.deepEqual(seen.filter(value => !value.startsWith('end')).sort(), committed.sort())
  const moved = async () => (await admin.fetchOffsets({ groupId, topics: [topic] }))[0].partitions.find(one => one.partition === 0).offset
  await until('the offset of the last committed transaction', async () => await moved() === '5')
  await Promise.all([consumer, producer, heir].map(one => one.disconnect()))
  console.log('ok: transactions, committed, aborted, fenced, with offsets')
}

async function deletions(admin) {
  await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '10' }] })
  const [first] = (await admin.fetchTopicOffsets(topic)).filter(one => one.partition === 0)
  assert.equal(first.low, '10')
  await admin.deleteTopics({ topics: [topic] })
  await until('the topic is gone', async () => !(await admin.listTopics()).includes(topic))
  console.log('ok: records and topics are deleted')
}

const admin = kafka.admin()
await admin.connect()
await topics(admin)
await records(admin)
await groups(admin)
await transactions(admin)
await deletions(admin)
await admin.disconnect()
console.log('node life done')
process.exit(0)
